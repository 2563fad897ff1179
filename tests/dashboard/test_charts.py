"""Charts must be readable in light and in dark: no mark is left to the page's default, black."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import dashboard
from dashboard.charts import front, study_history, sweep, time_series
from dashboard.history import Estimate, Point, parse_objective, points
from dashboard.theme import NEUTRAL
from tests.dashboard.test_history import row

RATE = parse_objective("maximize output_tps")


def failed(order: int) -> Point:
    return Point(order, order, "search", "failed", {}, Estimate(None), {}, "no memory", 0.0, None)


def test_no_page_draws_with_plotly() -> None:
    """Streamlit mounts a plotly chart anew at every tick: zoom and legend are lost."""
    pages = sorted(Path(dashboard.__file__).parent.rglob("*.py"))
    assert len(pages) > 10
    assert [page.name for page in pages if "plotly" in page.read_text()] == []


def test_a_study_without_a_result_has_an_axis_that_begins_at_zero() -> None:
    chart = study_history([failed(1)], RATE, None).to_dict()
    scales = [layer["encoding"]["y"]["scale"] for layer in chart["layer"]
              if "scale" in layer["encoding"].get("y", {})]  # fmt: skip
    assert scales == [{"zero": True, "domain": [0, 1]}]


def test_intervals_of_a_study_are_drawn_in_a_colour_of_both_schemes() -> None:
    figure = Estimate(100.0, 90.0, 110.0, 12, "tok/s")
    point = Point(1, 1, "baseline", "met", {}, figure, {}, "", 0.0, 1.0)
    chart = study_history([point], parse_objective("maximize output_tps"), 100.0).to_dict()
    rules = [layer["mark"] for layer in chart["layer"] if layer["mark"]["type"] == "rule"]
    assert len(rules) == 2
    assert {rule["color"] for rule in rules} == {NEUTRAL}


def test_a_front_shows_both_objectives_in_their_units_with_intervals() -> None:
    rows = [
        {"config": "a", "output_tps": 90.0, "output_tps_low": 80.0, "output_tps_high": 99.0,
         "ttft_p95": 0.2, "ttft_p95_low": 0.1, "ttft_p95_high": None},
    ]  # fmt: skip
    chart = front(rows, ["output_tps", "ttft_p95"]).to_dict()
    (drawn,) = next(iter(chart["datasets"].values()))
    assert (drawn["ttft_p95"], drawn["ttft_p95_low"], drawn["output_tps"]) == (200, 100, 90)
    assert math.isnan(drawn["ttft_p95_high"])
    titles = {layer["encoding"]["y"].get("title") for layer in chart["layer"]}
    assert titles == {"ttft_p95 (ms)", None}

    (shown,) = [
        [(told["field"], told.get("title")) for told in layer["encoding"]["tooltip"]]
        for layer in chart["layer"]
        if "tooltip" in layer["encoding"]
    ]
    assert shown == [
        ("config", None), ("output_tps_shown", "output_tps"), ("ttft_p95_shown", "ttft_p95"),
    ]  # fmt: skip
    assert drawn["output_tps_shown"] == "90 tok/s (80 … 99)"
    assert drawn["ttft_p95_shown"] == "200 ms"


def test_a_front_shows_shares_in_percent() -> None:
    names = ["output_tps", "attainment"]
    rows = [
        {"config": "a"} | {f"{name}{end}": 0.5 for name in names for end in ("", "_low", "_high")}
    ]
    chart = front(rows, names).to_dict()
    (drawn,) = next(iter(chart["datasets"].values()))
    assert (drawn["output_tps"], drawn["attainment"]) == (0.5, 50)
    assert "attainment (%)" in {layer["encoding"]["y"].get("title") for layer in chart["layer"]}


def test_a_front_is_joined_only_where_two_objectives_are_all() -> None:
    names = ["output_tps", "ttft_p95", "error_rate"]
    rows = [
        {"config": str(i)}
        | {f"{name}{end}": float(i) for name in names for end in ("", "_low", "_high")}
        for i in range(3)
    ]
    for shown, lines in ((names[:2], 1), (names, 0)):
        chart = front(rows, shown).to_dict()
        kinds = [layer["mark"]["type"] for layer in chart["layer"]]
        assert kinds.count("line") == lines
        assert kinds.count("point") == 1


def test_a_chart_of_days_names_the_day() -> None:
    for span_s, written in ((600.0, "%H:%M:%S"), (86_400.0, "%d %b %H:%M")):
        points = [(1.8e9, 1.0), (1.8e9 + span_s, 2.0)]
        chart = time_series({"running": points}, "req").to_dict()
        assert chart["layer"][0]["encoding"]["x"]["axis"]["format"] == written


def test_a_sweeps_interval_without_an_upper_end_is_drawn_and_cut_off() -> None:
    figures = [
        Estimate(2.0, 1.5, math.inf, 20, "s"),
        Estimate(None),
        Estimate(1.0, 0.9, 1.1, 40, "s"),
    ]
    drawn = sweep("max_num_seqs", ["1", "4", "8"], figures, "ttft_p95", (0.5, "ttft_p95<500ms"))
    assert drawn is not None
    [rows] = [rows for rows in drawn.to_dict()["datasets"].values() if "knob" in rows[0]]
    assert [row["knob"] for row in rows] == ["1", "8"]
    assert [row["high"] for row in rows] == pytest.approx([3200.0, 1100.0])
    assert rows[0]["shown"] == "2 s (1.5 … ∞) n=20"
    assert rows[0]["cut"] == rows[0]["high"]  # marked, where the other ends where it is drawn to
    assert rows[1]["cut"] is None
    assert sweep("k", ["1"], [Estimate(math.inf)], "ttft_p95", None) is None


def test_a_history_stays_readable_where_an_interval_has_no_upper_end() -> None:
    """An axis up to infinity has no ticks, and no bar on it is drawn."""
    figures = [Estimate(2.0, 1.5, math.inf, 20, "s"), Estimate(1.0, 0.9, 1.1, 40, "s")]
    found = [
        Point(order, order, "search", "met", {}, figure, {}, "", 0.0, 1.0)
        for order, figure in enumerate(figures, start=1)
    ]
    chart = study_history(found, parse_objective("minimize ttft_p95"), None).to_dict()
    [rows] = [data for data in chart["datasets"].values() if "outcome" in data[0]]
    assert [row["high"] for row in rows] == pytest.approx([3200.0, 1100.0])
    assert rows[0]["cut"] == rows[0]["high"]
    assert rows[1]["cut"] is None


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ("inf", "ttft_p95 is infinite: too many requests failed"),
        (None, "no ttft_p95: it was not measured"),
        ("absent", "no ttft_p95: it was not measured"),
    ],
)
def test_a_measurement_whose_objective_has_no_figure_is_drawn_without_a_result(
    stored: str | None, why: str
) -> None:
    """Its other figures met their SLO: it is neither a point of that verdict nor a score of 0."""
    verdict = {"state": "pass", "clauses": [{"clause": "output_tps>1", "state": "pass"}]}
    figures = {} if stored == "absent" else {"ttft_p95": {"value": stored, "low": 0.1, "high": 9}}
    objective = parse_objective("minimize ttft_p95")
    rows = [
        row(1, summary={"figures": {"ttft_p95": {"value": 0.2}}}, verdict=verdict),
        row(2, summary={"figures": figures}, verdict=verdict),
    ]
    chart = study_history(points(rows, objective), objective, None).to_dict()
    [drawn] = [data for data in chart["datasets"].values() if "outcome" in data[0]]
    [marks] = [layer for layer in chart["layer"] if "shape" in layer["encoding"]]
    scale = marks["encoding"]["shape"]["scale"]
    shapes = dict(zip(scale["domain"], scale["range"], strict=True))
    assert [shapes[one["outcome"]] for one in drawn] == ["circle", "cross"]
    told = {field["field"]: drawn[1][field["field"]] for field in marks["encoding"]["tooltip"]}
    assert (told["outcome"], told["reason"], told["shown"]) == ("no result", why, "–")
    assert [drawn[1][end] for end in ("low", "high")] == [None, None]
    assert [one["best"] for one in drawn] == [200.0, 200.0]
