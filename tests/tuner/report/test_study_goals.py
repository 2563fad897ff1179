"""The page of a study of each kind of goal: one figure, several, several loads, a capacity."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tuner.report.pages import text_of, whole
from tests.tuner.report.stored_studies import (
    DEFAULTS,
    capacities,
    many,
    measured,
    report_of,
    store,
)
from tuner.report.html.study_page import render_study_html
from tuner.report.study import MARGIN, StudyReport
from tuner.report.study_text import study_report_dict
from tuner.search.objective import CAPACITY, Objective

LOADS = ("prompt=64,output=8,rate=10", "prompt=128,output=8,rate=5")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudyReport]:
    """A study of each kind of goal."""
    folder = tmp_path_factory.mktemp("studies")
    paths = {kind: folder / f"{kind}.db" for kind in ("plain", "front", "loads", "capacity")}
    store(paths["plain"], many())
    store(paths["front"], many(8), objectives=(Objective(), Objective("ttft_p95", "minimize")))
    store(paths["loads"], many(5, LOADS), loads=LOADS)
    store(paths["capacity"], capacities(), objectives=(Objective(CAPACITY),))
    return {kind: report_of(path) for kind, path in paths.items()}


def test_history_and_importances_of_a_search(kinds: dict[str, StudyReport]) -> None:
    report = kinds["plain"]
    found = report.importances["output_tps"]
    assert found.n >= 10
    assert not found.why_not
    assert sum(share.value for share in found.shares) == pytest.approx(1)
    assert all(0 <= s.low <= s.value <= s.high <= 1 for s in found.shares)
    assert {s.knob for s in found.shares} == {axis.name for axis in report.axes}
    assert MARGIN in report.importances
    page = render_study_html(report)
    text = whole(page, charts=16)
    assert f"n={found.n} measurements" in text
    history = page.partition("<h2>History</h2>")[2].partition("</svg>")[0]
    marks = len(re.findall("<circle", history)) + history.count('class="cross"')
    assert marks == len(report.points)
    for point in report.points:
        assert f"<title>{point.number} {point.trial.stage} " in history
    assert ">0.5<" not in history
    assert '<th class="num">output_tps</th>' in page


def test_several_objectives_have_a_front_each_drawn(kinds: dict[str, StudyReport]) -> None:
    report = kinds["front"]
    page = render_study_html(report)
    text = whole(page, charts=12)
    assert "minimize ttft_p95 (up) against maximize output_tps (across)" in text
    assert page.count("dashed: the baseline") == 2
    assert set(report.importances) == {"output_tps", "ttft_p95", MARGIN}


def test_several_loads_are_worth_their_worst_ratio(kinds: dict[str, StudyReport]) -> None:
    report = kinds["loads"]
    assert len(report.outcomes) > len(report.points)
    text = whole(render_study_html(report), charts=10)
    assert "× baseline; dashed: the baseline" in text
    assert "prompt=64,output=8,rate=10 and prompt=128,output=8,rate=5" in text


def test_each_load_has_its_figures_and_the_worst_come_first(kinds: dict[str, StudyReport]) -> None:
    text = text_of(render_study_html(kinds["loads"]))
    places = [
        text.index(told) for told in ("the worst of all loads", *(f"load {x}" for x in LOADS))
    ]
    assert text.index("Baseline and best") < places[0]
    first, second = (text.index(f"load {load} baseline") for load in LOADS)
    assert places[0] < first < second


def test_capacity_is_shown_with_its_bracket(kinds: dict[str, StudyReport]) -> None:
    report = kinds["capacity"]
    assert report.unit(0) == "req/s"
    point = next(p for p in report.points if p.value)
    estimate = point.estimates[0]
    assert estimate is not None
    assert estimate.low <= (point.value or 0) <= estimate.high
    assert {p.state for p in report.points} <= {"pass", "inconclusive"}
    text = whole(render_study_html(report), charts=7)
    assert "capacity" in text
    assert "(where the search for the highest level began; other figures: at" in text
    (ladder,) = report.ladders
    by_factor = {rung.factor: rung for rung in ladder.rungs}
    tight, loose = by_factor[0.5].estimate, by_factor[1.0].estimate
    assert loose is not None
    assert tight is None or tight.value <= loose.value


def test_a_dominated_capacity_is_no_figure(tmp_path: Path) -> None:
    """It missed the SLOs at the first level: what the sampler is told of it is a guess."""
    dominated = measured(
        DEFAULTS | {"chunk_size": 4096}, seed=9, at_s=500, ttft_s=1.0,
        load="prompt=64,output=8,rate=8",
    )  # fmt: skip
    store(tmp_path / "s.db", [*capacities(), dominated], objectives=(Objective(CAPACITY),))
    report = report_of(tmp_path / "s.db")
    point = report.points[-1]
    assert report.goal.read(point.trial, report.trials).values[0] is not None
    assert (point.value, point.state) == (None, "fail")
    assert point.why == "no data for capacity: the SLOs were missed down to 8"
    assert study_report_dict(report)["trials"][-1]["values"] == [None]
    assert report.importances[CAPACITY].n == len(report.points) - 3  # two baselines, and this one
    page = render_study_html(report)
    history, rest = page.partition("<h2>History</h2>")[2].split("</svg>", 1)
    assert history.count('class="cross"') == 1
    heat = rest.partition(" (up)")[2].partition("</svg>")[0]
    assert re.findall(r"mean [^<]* of (\d)", heat) == ["2", "2"]
