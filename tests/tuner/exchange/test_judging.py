"""Judging stored runs again: other SLOs, several runs as one, nothing stored is changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.tuner.exchange.recorded import made
from tests.tuner.runs import good
from tuner.exchange.judging import judged, measurement, workload_of
from tuner.exchange.run import Run, header, in_window
from tuner.report.rejudge import rejudge_lines
from tuner.slo import parse_slos


def test_another_slo_changes_the_verdict_and_nothing_else() -> None:
    run = made(slo="ttft_p95<1s")
    before = copy.deepcopy(header(run))
    assert run.verdict is not None
    assert run.verdict["state"] == "pass"
    result = judged([run], parse_slos(["ttft_p95<10ms"]))
    assert result.verdict.state == "fail"
    assert result.summary["ttft_p95"].value == pytest.approx(0.05)
    assert header(run) == before


def test_runs_together_decide_what_one_cannot() -> None:
    few = [made([good(i, at_s=i / 10) for i in range(40)], slo="") for _ in range(2)]
    slos = parse_slos(["ttft_p95<1s"])
    assert judged(few[:1], slos).verdict.state == "inconclusive"
    both = judged(few, slos)
    assert both.verdict.state == "pass"
    assert both.runs == 2
    assert both.summary["ttft_p95"].n == 80


def late(lag_s: float, slo: str) -> Run:
    return made([good(i, at_s=i / 10, lag_s=lag_s) for i in range(70)], slo=slo)


def test_lag_is_held_against_the_new_bound() -> None:
    run = late(0.02, "ttft_p95<100ms")
    assert run.state == "invalid"
    assert judged([run], parse_slos(["ttft_p95<1s"])).verdict.state == "pass"
    strict = judged([late(0.02, "ttft_p95<1s")], parse_slos(["ttft_p95<150ms"]))
    assert strict.verdict.state == "inconclusive"
    assert "late itself" in strict.verdict.reason


def test_what_only_the_generator_saw_stays_invalid() -> None:
    run = made(slo="ttft_p95<1s")
    stalled = replace(run, summary=run.summary | {"invalid_reason": "the generator stalled"})
    assert measurement(stalled, parse_slos(["ttft_p95<2s"])).invalid_reason
    assert judged([stalled], parse_slos(["ttft_p95<2s"])).verdict.state == "inconclusive"


def test_a_spoilt_run_that_misses_is_told_as_spoilt() -> None:
    run = late(0.02, "ttft_p95<100ms")
    slos = parse_slos(["ttft_p95<1ms"])
    found = judged([run], slos)
    assert found.verdict.state == "fail"
    assert f"  {run.name}: invalid: {found.invalid}" in rejudge_lines([(run, found)], slos)
    assert "late itself" in found.invalid


def test_price_is_given_anew() -> None:
    priced = judged([made()], parse_slos(["cost_per_mtok<1000$"]), 2.0)
    assert priced.verdict.clauses[0].estimate.value > 0
    assert judged([made()], parse_slos(["cost_per_mtok<1000$"])).verdict.state == "fail"


def test_workload_that_cannot_be_read_any_more() -> None:
    run = made()
    assert str(workload_of("prompt=8,output=4,rate=2", run.columns)).endswith("rate=2")
    assert str(workload_of("trace=/gone.csv", run.columns)).startswith("prompt=8,output=5")


def test_requests_of_the_warm_up_are_outside() -> None:
    run = replace(made(), window_s=(1.0, 3.0))
    assert in_window(run).sum() == 20
