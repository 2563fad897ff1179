"""Charts must be readable in light and in dark: no mark is left to the page's default, black."""

from __future__ import annotations

from dashboard.charts import study_history
from dashboard.history import Estimate, Objective, Point
from dashboard.theme import NEUTRAL

RATE = Objective("output_tps", maximize=True)


def failed(order: int) -> Point:
    return Point(order, order, "search", "failed", {}, Estimate(None), {}, "no memory", 0.0, None)


def test_a_study_without_a_result_has_an_axis_that_begins_at_zero() -> None:
    chart = study_history([failed(1)], RATE, None).to_dict()
    scales = [layer["encoding"]["y"]["scale"] for layer in chart["layer"]
              if "scale" in layer["encoding"].get("y", {})]  # fmt: skip
    assert scales == [{"zero": True, "domain": [0, 1]}]


def test_intervals_of_a_study_are_drawn_in_a_colour_of_both_schemes() -> None:
    figure = Estimate(100.0, 90.0, 110.0, 12, "tok/s")
    point = Point(1, 1, "baseline", "met", {}, figure, {}, "", 0.0, 1.0)
    chart = study_history([point], Objective("output_tps", maximize=True), 100.0).to_dict()
    rules = [layer["mark"] for layer in chart["layer"] if layer["mark"]["type"] == "rule"]
    assert len(rules) == 2
    assert {rule["color"] for rule in rules} == {NEUTRAL}
