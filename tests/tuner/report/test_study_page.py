"""A study's page: what it says is what the study holds, whatever the study holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuner.report.pages import text_of, whole
from tests.tuner.report.stored_studies import (
    DEFAULTS,
    all_requests_failed,
    broken,
    by_hand,
    loaded,
    measured,
    report_of,
    store,
)
from tests.tuner.report.test_html import HOSTILE
from tuner.errors import UserError
from tuner.report.html.study_page import render_study_html
from tuner.report.recorded import kind_of
from tuner.report.study import StudyReport, study_report
from tuner.report.study_text import study_report_dict, study_report_lines
from tuner.stats import Estimate
from tuner.units import show


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> StudyReport:
    path = tmp_path_factory.mktemp("hand") / "s.db"
    store(path, by_hand())
    return report_of(path)


def told(estimate: Estimate) -> str:
    return show(estimate.value, estimate.unit)


def test_the_answer_and_its_figures_are_those_of_the_study(hand: StudyReport) -> None:
    decision = hand.decision
    assert decision is not None
    assert decision.best is not None
    text = whole(render_study_html(hand), charts=10)
    first = text.index("A better configuration is confirmed: meets the SLOs")
    gain = decision.gain
    assert gain is not None
    assert text.index(f"{gain.low:.3g} to {gain.high:.3g}") < text.index("Baseline and best")
    assert first < text.index("output_tps 1.25 × baseline")
    for key in ("output_tps", "ttft_p95"):
        for pooled in (decision.baseline, decision.best):
            found = pooled.summary[key]
            assert told(found) in text
            assert f"{show(found.low, found.unit)} … {show(found.high, found.unit)}" in text
    assert "9 measurements in 9 trials" in text
    assert "--max-num-batched-tokens 256" in text
    assert "nodePort" not in text
    assert "chunk_size=8192" in text


def test_points_know_their_state_and_reason(hand: StudyReport) -> None:
    points = hand.points
    assert [p.state for p in points] == [
        "fail", "fail", "fail", "pass", "none", "fail", "pass", "pass", "fail",
    ]  # fmt: skip
    assert points[4].why == "failed: out of memory"
    assert points[4].value is None
    assert points[0].why == "ttft_p95<500ms: 848 ms"
    assert [p.number for p in points] == list(range(1, 10))


def test_a_failure_is_told_with_its_reason_and_log(hand: StudyReport) -> None:
    page = render_study_html(hand)
    text = text_of(page)
    assert "out of memory" in text
    assert "last words of the server" in text
    assert page.count('<path class="cross"') >= 2  # in the history and in its slices
    assert "1 of 9 measurements failed: 1 × out of memory" in text


def test_every_text_of_a_study_is_escaped(tmp_path: Path) -> None:
    config = DEFAULTS | {"--own-flag": HOSTILE}
    outcomes = [
        measured(config, stage="baseline", seed=0),
        measured(config, stage="baseline", seed=1, at_s=20),
        broken(config | {"chunk_size": 64}, f"{HOSTILE}\n{HOSTILE}", at_s=40),
    ]
    target = {"original_config": config, "model": HOSTILE, "url": HOSTILE, HOSTILE: HOSTILE}
    store(tmp_path / "s.db", outcomes, name=HOSTILE, target=target)
    stored = loaded(tmp_path / "s.db", HOSTILE)
    spoiled = replace(stored.study, command=HOSTILE, state=HOSTILE)
    page = render_study_html(study_report(replace(stored, study=spoiled)))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "alert(&quot;x&quot;)" in page
    whole(page, charts=10)


def test_nothing_measured_is_no_data(tmp_path: Path) -> None:
    store(tmp_path / "s.db", [], state="running")
    report = report_of(tmp_path / "s.db")
    text = whole(render_study_html(report), charts=0)
    assert "No answer: no data: the study is running and holds no measurement" in text
    assert "no configuration is recommended" in text
    assert "no data: the study is running" in "\n".join(study_report_lines(report))
    assert study_report_dict(report)["answer"] is None


def test_all_failed_gives_reasons_and_no_figures(tmp_path: Path) -> None:
    outcomes = [broken(DEFAULTS, "CUDA error", stage="baseline", at_s=i) for i in range(3)]
    store(tmp_path / "s.db", outcomes, state="failed")
    text = whole(render_study_html(report_of(tmp_path / "s.db")), charts=9)
    assert "the baseline has no result: CUDA error" in text
    assert "3 of 3 measurements failed: 3 × CUDA error" in text
    assert "the baseline was not diagnosed: it has no result" in text
    assert "maximize output_tps; dashed: the baseline&#x27;s mean, no data" in text
    assert "0 tok/s" not in text


def test_no_traffic_no_data_and_zero_are_three_things(tmp_path: Path) -> None:
    zero = DEFAULTS | {"chunk_size": 64}
    outcomes = [
        measured(DEFAULTS, stage="baseline", seed=0),
        measured(DEFAULTS, stage="baseline", seed=1, at_s=10),
        measured(DEFAULTS | {"chunk_size": 128}, seed=2, at_s=20, records=[]),
        all_requests_failed(zero | {"max_num_seqs": 8}),
    ]
    outcomes[3].started_at_s = 1_030.0
    store(tmp_path / "s.db", outcomes)
    report = report_of(tmp_path / "s.db")
    assert report.points[2].state == "none"
    assert report.points[2].why.startswith("no traffic")
    assert report.points[3].value == 0
    rows = render_study_html(report).partition("All measurements")[2].split("<tr>")
    assert "no traffic" in rows[4]
    assert "0 tok/s" in rows[5]
    assert "no data" not in rows[5]


def test_one_knob_is_all_of_the_importance_and_has_no_heat_map(tmp_path: Path) -> None:
    sizes = [2**i for i in range(4, 15)]
    outcomes = [measured(DEFAULTS, stage="baseline", seed=i, at_s=i) for i in range(2)]
    outcomes += [
        measured(DEFAULTS | {"chunk_size": size}, seed=9 + i, at_s=20 + i, count=40 + 2 * i)
        for i, size in enumerate(sizes)
    ]
    store(tmp_path / "s.db", outcomes, axes=["chunk_size=16:16384:log"])
    report = report_of(tmp_path / "s.db")
    (share,) = report.importances["output_tps"].shares
    assert (share.knob, share.value) == ("chunk_size", 1.0)
    text = whole(render_study_html(report), charts=6)
    assert "the only knob that was varied" in text
    assert "(across)" not in text


def test_words_and_switches_have_a_place_each(tmp_path: Path) -> None:
    outcomes = [measured(DEFAULTS, stage="baseline", seed=i, at_s=i) for i in range(2)]
    outcomes += [
        measured(
            DEFAULTS | {"dtype": dtype, "enable_prefix_caching": cached}, seed=5 + i,
            at_s=20 + i, count=50 + i,
        )
        for i, (dtype, cached) in enumerate([("auto", True), ("half", False), ("auto", False)])
    ]  # fmt: skip
    axes = ["dtype=auto,half", "enable_prefix_caching=true,false"]
    store(tmp_path / "s.db", outcomes, axes=axes)
    report = report_of(tmp_path / "s.db")
    assert [axis.name for axis in report.axes] == ["dtype", "enable_prefix_caching"]
    page = render_study_html(report)
    whole(page, charts=8)
    heat = page.partition("dtype (across) and enable_prefix_caching (up)")[2].partition("</svg>")[0]
    assert heat.count('class="heat"') == 3
    for label in (">auto<", ">half<", ">true<", ">false<"):
        assert label in heat


def test_an_answer_that_has_changed_is_told(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand(), result={"answer": "keep_baseline"})
    report = report_of(tmp_path / "s.db")
    assert "its answer was 'Keep the baseline'" in "\n".join(study_report_lines(report))
    assert "its answer was" in text_of(render_study_html(report))


def test_the_terminal_and_json_tell_the_same(hand: StudyReport) -> None:
    report = hand
    text = "\n".join(study_report_lines(report))
    told_ = study_report_dict(report)
    json.dumps(told_)
    assert told_["answer"] == "improved"
    assert len(told_["trials"]) == 9
    assert "what ttft_p95<500ms costs" in text
    rung = next(r for r in told_["slo_price"][0]["rungs"] if r["factor"] == 1.5)
    assert rung["config"]["chunk_size"] == 1024
    assert not rung["confirmed"]
    assert "1 search run" in text
    assert "cannot tell: 2 measurements with a result" in text


def test_a_study_of_no_known_command_is_refused_in_one_sentence(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand())
    stored = loaded(tmp_path / "s.db")
    space = {k: v for k, v in (stored.study.space or {}).items() if k != "objectives"}
    with pytest.raises(UserError, match="is of none of `tuner optimize`, `sweep` and `verify`"):
        kind_of(replace(stored, study=replace(stored.study, space=space)))


def test_an_axis_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand(), axes=["chunk_size=1:8192:log", "max_num_seqs=8~16"])
    report = report_of(tmp_path / "s.db")
    assert [axis.name for axis in report.axes] == ["chunk_size"]
    told_ = "this version cannot read max_num_seqs=8~16: no importance and no slice is shown of it"
    assert told_ in text_of(render_study_html(report))
    assert told_ in "\n".join(study_report_lines(report))
    store(tmp_path / "t.db", by_hand())
    assert "cannot read" not in "\n".join(study_report_lines(report_of(tmp_path / "t.db")))


def test_the_provenance_names_the_quality_file(hand: StudyReport) -> None:
    space = (hand.study.space or {}) | {"quality": "/tasks/sums.jsonl"}
    asked = replace(hand, study=replace(hand.study, space=space))
    assert "quality file /tasks/sums.jsonl" in text_of(render_study_html(asked))
    assert "quality file" not in text_of(render_study_html(hand))
