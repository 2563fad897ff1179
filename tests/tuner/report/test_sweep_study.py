"""A stored sweep told again: its values, its plots, what the knob trades, the verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuner.report.pages import text_of, whole
from tests.tuner.report.stored_studies import (
    DEFAULTS,
    broken,
    by_hand,
    diagnose_first,
    loaded,
    measured,
    store,
    store_sweep,
    swept,
)
from tests.tuner.search.synthetic import LOAD
from tuner.report.any_study import dict_of, lines_of, page_of, report_of
from tuner.report.recorded import is_sweep
from tuner.report.sweep_study import SweepReport
from tuner.units import show


def told(path: Path) -> SweepReport:
    found = report_of(loaded(path))
    assert isinstance(found, SweepReport)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> SweepReport:
    path = tmp_path_factory.mktemp("sweep") / "s.db"
    store_sweep(path, swept())
    return told(path)


def test_a_studys_own_row_tells_a_sweep(tmp_path: Path) -> None:
    store_sweep(tmp_path / "sweep.db", swept())
    store(tmp_path / "search.db", by_hand())
    assert is_sweep(loaded(tmp_path / "sweep.db").study)
    assert not is_sweep(loaded(tmp_path / "search.db").study)


def test_each_value_is_a_row_and_the_servers_own_is_marked(plain: SweepReport) -> None:
    text = "\n".join(lines_of(plain))
    assert text.startswith("Swept chunk_size: a value is shown to meet the SLOs")
    assert "2048 (own)" in text
    assert "256 (own)" not in text
    assert "chunk_size trades: larger steps" in text
    assert "best output_tps among values that meet the SLOs: chunk_size=1024, " in text
    assert "█" in text
    assert f"load {LOAD} · seed 0 · each measurement 10 s after at least 2 s" in text
    assert "began as: tuner sweep --knob" in text


def test_what_is_undecided_says_why(plain: SweepReport) -> None:
    line, points = plain.found[0]
    pooled = points[0].pooled
    assert pooled is not None
    (clause,) = pooled.verdict.clauses
    doubtful = replace(clause, state="inconclusive", reason="needs at least 31 more requests")
    verdict = replace(pooled.verdict, state="inconclusive", clauses=(doubtful,))
    first = replace(points[0], pooled=replace(pooled, verdict=verdict))
    report = replace(plain, found=((line, (first, *points[1:])),))
    why = "ttft_p95<500ms undecided, needs at least 31 more requests"
    assert f"  chunk_size=256: {why}" in lines_of(report)
    assert "undecided, needs at least 31 more requests" in whole(page_of(report), charts=3)
    alone = replace(plain, found=((line, (first,)),))
    told = "  no value is shown to meet the SLOs; a longer --duration or more --repeat may decide"
    assert told in lines_of(alone)


def test_the_page_draws_every_figure_with_its_bound(plain: SweepReport) -> None:
    page = page_of(plain)
    text = whole(page, charts=3)  # output_tps, ttft_p95 and the timeline
    (_, points) = plain.found[0]
    for point in points:
        assert point.pooled is not None
        found = point.pooled.summary["ttft_p95"]
        assert show(found.value, found.unit) in text
    drawn = page.partition("<h3>ttft_p95</h3>")[2].partition("</svg>")[0]
    assert drawn.count("<circle") == 3
    assert drawn.count("ring broken") == 1
    assert 'class="bound"' in drawn
    assert "own setting" in drawn
    assert "missed" in text
    assert "It trades: larger steps" in text


def test_json_holds_what_the_terminal_tells(plain: SweepReport) -> None:
    found = json.loads(json.dumps(dict_of(plain)))
    (one,) = found["sweeps"]
    assert (found["state"], one["knob"], one["own"]) == ("done", "chunk_size", 2048)
    assert [point["value"] for point in one["points"]] == [256, 1024, 2048]
    assert [point["verdict"]["state"] for point in one["points"]] == ["pass", "pass", "fail"]
    assert one["best"]["value"] == 1024


def test_a_sweep_that_was_stopped_names_what_is_missing(tmp_path: Path) -> None:
    store_sweep(tmp_path / "s.db", swept()[:1], state="stopped")
    report = told(tmp_path / "s.db")
    text = "\n".join(lines_of(report))
    assert "the study is stopped: this is what it holds so far" in text
    assert text.count("not measured") == 6  # in the table and in each of two plots
    page = page_of(report)
    assert "1024: not measured" in page
    assert "the study is stopped" in text_of(page)


def test_an_empty_sweep_has_no_data_and_one_that_failed_its_reasons(tmp_path: Path) -> None:
    store_sweep(tmp_path / "s.db", [], state="failed")
    text = whole(page_of(told(tmp_path / "s.db")), charts=2)
    assert "No data: the sweep is failed and holds no measurement" in text
    failed = [
        broken(DEFAULTS | {"chunk_size": n}, "out of memory", stage="sweep", at_s=n)
        for n in (256, 1024, 2048)
    ]
    store_sweep(tmp_path / "f.db", failed)
    report = told(tmp_path / "f.db")
    text = whole(page_of(report), charts=3)
    assert "Swept chunk_size: no value is shown to meet the SLOs" in text
    assert "3 of 3 measurements failed: 3 × out of memory" in text
    assert "0 tok/s" not in text
    assert "out of memory" in "\n".join(lines_of(report))


def test_a_load_that_was_swept_and_several_loads(tmp_path: Path) -> None:
    other = "prompt=128,output=8,rate=5"
    levels = [
        measured(DEFAULTS, stage="sweep", at_s=place * 20, count=10 * int(rate),
                 load=f"{load.rpartition('=')[0]}={rate}")
        for place, (load, rate) in enumerate([(LOAD, 5), (LOAD, 10), (other, 5), (other, 10)])
    ]  # fmt: skip
    store_sweep(tmp_path / "s.db", levels, knobs=(), load_knobs=["rate=5,10"], loads=(LOAD, other))
    report = told(tmp_path / "s.db")
    measured_ = [[p.pooled is not None for p in points] for _, points in report.found]
    assert measured_ == [[True, True], [True, True]]
    text = "\n".join(lines_of(report))
    assert "10 (own)" in text
    assert "5 (own)" in text
    assert "rate trades: more requests per second" in text
    assert f"rate under {other}" in text_of(page_of(report))


def test_values_that_another_knob_forbids_were_not_swept(tmp_path: Path) -> None:
    store_sweep(tmp_path / "s.db", [], knobs=["chunk_size=16:2048:log"], points=4)
    ((_, points),) = told(tmp_path / "s.db").found
    assert all(float(point.value) >= 128 for point in points)  # chunk_size ≥ max_num_seqs
    assert len(points) < 4


def test_words_have_no_line_between_them(tmp_path: Path) -> None:
    outcomes = [
        measured(DEFAULTS | {"dtype": name}, stage="sweep", at_s=20 * i, count=40 + i)
        for i, name in enumerate(("auto", "half"))
    ]
    own = DEFAULTS | {"dtype": "auto"}
    store_sweep(tmp_path / "s.db", outcomes, knobs=["dtype=auto,half"], slos="", own=own)
    report = told(tmp_path / "s.db")
    ((line, points),) = report.found
    assert (line.axis.name, [point.value for point in points]) == ("dtype", ["auto", "half"])
    page = page_of(report)
    assert 'class="line faintline"' not in page
    assert "auto (own)" in "\n".join(lines_of(report))
    assert report.headline == "Swept: dtype"


def test_what_cannot_be_read_any_more_is_told(tmp_path: Path) -> None:
    store_sweep(tmp_path / "s.db", swept(), knobs=["chunk_size=8~16"])
    report = told(tmp_path / "s.db")
    assert report.found == ()
    assert report.headline.startswith("this version cannot read what was swept (--knob chunk_size")
    assert "3 measurements" in "\n".join(lines_of(report))


def test_the_diagnosis_that_chose_the_knobs_is_told_with_what_they_gave(tmp_path: Path) -> None:
    store_sweep(tmp_path / "s.db", swept()[::-1])
    diagnose_first(tmp_path / "s.db")
    text = "\n".join(lines_of(told(tmp_path / "s.db")))
    assert "4.interference critical, Prefill interrupts decodes: p99 of gaps is 5 × p50" in text
    assert "chunk_size down  chunk_size=256: output_tps 23.6 tok/s [" in text
    assert "more replicas    not tried" in text
    assert "chunk_size=2048: output_tps" not in text  # the server's own is no turn of the knob


def test_a_sweep_that_was_not_diagnosed_says_so(plain: SweepReport) -> None:
    assert "not diagnosed: its knobs were named" in "\n".join(lines_of(plain))
    assert dict_of(plain)["findings"] is None
