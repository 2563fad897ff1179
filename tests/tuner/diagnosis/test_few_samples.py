"""What one request, error or gap shows can fire, and is never critical."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from storage.sources.base import Outcome
from tests.tuner.diagnosis.cases import (
    PREFILL,
    QUEUE,
    SLOS,
    SLOW_TPOT,
    STEPS,
    Clause,
    Slos,
    signals,
)
from tuner.diagnosis import Confidence, History, Signals, State, diagnose
from tuner.diagnosis.registry import BREAKDOWNS, SPECS, min_samples
from tuner.diagnosis.specs import MEAN_LEAST, SHARE_LEAST, WHY_LEAST, quantile_least

PAGE = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text()


def seen_over(look: Signals, **samples: int) -> Signals:
    """The same look with so many observations behind these readings."""
    fewer = {name: replace(look.readings[name], samples=n) for name, n in samples.items()}
    return replace(look, readings={**look.readings, **fewer})


def of_errors(errors: float, others: float) -> Signals:
    return signals(breakdowns={"finished_by": {"stop": others, "error": errors}})


@pytest.mark.parametrize(
    ("errors", "others", "state"),
    [
        (1, 0, State.WARNING),
        (1, 18, State.WARNING),
        (1, 19, State.CRITICAL),
        (1, 21, State.WARNING),
        (0, 1, State.OK),
    ],
)
def test_one_error_of_few_requests(errors: float, others: float, state: State) -> None:
    node = diagnose(of_errors(errors, others), SLOS).node("2.errors")
    assert node.state is state
    if errors and errors + others < SHARE_LEAST:
        assert node.confidence is Confidence.POSSIBLE
        assert f"{errors + others:.0f} of the 20 that finished_by takes" in str(node.evidence)


@pytest.mark.parametrize(("samples", "state"), [(1, State.WARNING), (19, State.WARNING),
                                                (20, State.CRITICAL)])  # fmt: skip
def test_the_p95_of_few_requests(samples: int, state: State) -> None:
    look = seen_over(signals(ttft_p95=9.0), ttft_p95=samples)
    node = diagnose(look, SLOS).node("3")
    assert node.state is state
    assert node.samples == samples
    if samples < 20:
        assert node.confidence is Confidence.POSSIBLE
        assert f"{samples} of the 20 that ttft_p95 takes: possible" in str(node.evidence)


def test_a_history_does_not_make_few_samples_more() -> None:
    history, look = History(), seen_over(signals(ttft_p95=9.0), ttft_p95=19)
    for _ in range(4):
        node = diagnose(look, SLOS, history).node("3")
    assert (node.state, node.confidence) == (State.WARNING, Confidence.POSSIBLE)


def test_a_quantile_that_only_an_slo_names() -> None:
    slos = Slos((Clause("ttft", 0.5, "p90"),))
    look = signals(ttft_p90=9.0)
    assert diagnose(seen_over(look, ttft_p90=9), slos).node("3").state is State.WARNING
    assert diagnose(seen_over(look, ttft_p90=10), slos).node("3").state is State.CRITICAL


def test_means_and_tails() -> None:
    long = signals(**PREFILL | {"prompt_tokens": 3000.0})
    assert diagnose(long, SLOS).node("3b.long_prompt").state is State.CRITICAL
    few = seen_over(long, prompt_tokens=2)
    assert diagnose(few, SLOS).node("3b.long_prompt").state is State.WARNING
    gaps = signals(**SLOW_TPOT | {"itl_p50": 0.02, "itl_p99": 0.3, "step_tokens_p99": 500.0})
    assert diagnose(gaps, SLOS).node("4.interference").state is State.CRITICAL
    node = diagnose(seen_over(gaps, itl_p99=99), SLOS).node("4.interference")
    assert (node.state, node.confidence) == (State.WARNING, Confidence.POSSIBLE)


def test_what_few_samples_hold_at_a_warning_makes_no_leaf_critical() -> None:
    full = signals(**QUEUE | {"breakdowns": {"binding": STEPS | {"kv_pressure": 60.0}}})
    assert diagnose(full, SLOS).node("3a.kv").state is State.CRITICAL
    found = diagnose(seen_over(full, ttft_p95=1), SLOS)
    assert found.severity is State.WARNING
    leaf = found.node("3a.kv")
    assert (leaf.state, leaf.confidence) == (State.WARNING, Confidence.POSSIBLE)
    assert "1 of the 20 that ttft_p95 takes: possible" in str(leaf.evidence)


def test_answers_of_few_requests_that_max_tokens_cuts_off_are_possible_at_most() -> None:
    cut = {"finished_by": {"stop": 1.0, "length": 11.0}}
    look = signals(finished=12.0, breakdowns=cut, asked_tokens=None)
    unset = replace(look.readings["asked_tokens"], outcome=Outcome.NO_TRAFFIC)
    look = replace(look, readings={**look.readings, "asked_tokens": unset})
    all_cut = {"finished_by": {"length": 12.0}}
    none_ends = signals(finished=12.0, breakdowns=all_cut)
    none_ends = replace(none_ends, readings={**none_ends.readings, "asked_tokens": unset})
    for seen in (look, none_ends):
        node = diagnose(seen, SLOS).node("2.length")
        assert (node.state, node.confidence) == (State.WARNING, Confidence.POSSIBLE)


@pytest.mark.parametrize(("q", "least"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100),
                                          (0.999, 1000)])  # fmt: skip
def test_how_many_a_quantile_takes(q: float, least: int) -> None:
    assert quantile_least(q) == least


def test_every_histogram_has_a_least_number() -> None:
    for spec in SPECS:
        assert (spec.min_samples > 0) == (spec.kind in ("mean", "quantile")), spec.name
    assert min_samples("finished_by") == SHARE_LEAST
    assert min_samples("kind_s") == min_samples("no_such_signal") == 0


def test_the_least_numbers_are_documented_as_they_are() -> None:
    rows = {"mean": ("a mean", MEAN_LEAST), "share": ("a share of the requests that ended",
                                                      SHARE_LEAST)}  # fmt: skip
    for kind, (what, least) in rows.items():
        assert f"| {what} | {least} | {WHY_LEAST[kind]} |" in PAGE
    for q in sorted({spec.q for spec in SPECS if spec.q}):
        assert f"| p{q * 100:g} | {quantile_least(q)} | {WHY_LEAST['quantile']} |" in PAGE
    assert {spec.name for spec in BREAKDOWNS if spec.min_samples} == {"finished_by"}


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    ones = dict.fromkeys(("finished", "generated", "prompted", "preemptions"), 1.0)
    parts = {"finished_by": {"error": 1.0}, "binding": {"seq_cap": 1.0}}
    for planted in (QUEUE | {"breakdowns": parts}, PREFILL):
        said = [node.summary for node in diagnose(signals(**{**planted, **ones}), SLOS).nodes]
        assert any(re.search(r"\b1 (step|token|preemption|request)\b", text) for text in said)
        assert not [text for text in said if re.search(r"(?<![.,\d])1 (finished )?[a-z]+s\b", text)]


@pytest.mark.parametrize(
    ("key", "samples", "counted"),
    [
        ("2.errors", 114, "requests"),
        ("3", 40, "requests"),
        ("3a.seq_cap", 272, "steps"),
        ("4", 900, "gaps"),
        ("5", 114, "requests"),  # gauges of one replica: what finished meanwhile
        ("5.seq_cap", 114, "requests"),
        ("6", 114, "requests"),
        ("0", 0, ""),
    ],
)
def test_a_node_says_what_its_samples_are(key: str, samples: int, counted: str) -> None:
    look = signals(
        finished=113.6, waiting=9.0, ttft_p95=3.0, itl_p95=0.9, config={"max_num_seqs": "8"},
        breakdowns={"finished_by": {"stop": 113.6, "error": 0.0},
                    "binding": {"seq_cap": 271.7, "other": 0.0}},
    )  # fmt: skip
    seen = {"ttft_p95": 40, "itl_p95": 900, "running": 1, "waiting": 1, "kv_usage": 1}
    counts = {name: replace(look.readings[name], samples=n) for name, n in seen.items()}
    slos = Slos((Clause("ttft", 0.5), Clause("itl", 0.05)))
    found = diagnose(replace(look, readings={**look.readings, **counts}), slos)
    node = found.node(key)
    assert (node.samples, node.counted) == (samples, counted)
    if key == "2.errors":
        assert "0 of 114 requests" in node.summary
