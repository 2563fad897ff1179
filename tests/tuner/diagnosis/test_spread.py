"""Quantiles outside a histogram's buckets: read alike by every node that holds one against another,
and levers that hang on what the figures show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.tuner.diagnosis.cases import PREFILL, QUEUE, SLOS, SLOW_TPOT, Clause, Slos, signals
from tests.tuner.diagnosis.test_inferred import STEADY
from tuner.diagnosis import Confidence, Diagnosis, History, Signals, State, diagnose

Bound = Literal["", "≥", "≤"]

TAIL: dict[str, Any] = {
    "ttft": 0.1, "ttft_p95": 0.9, "ttft_p50": 0.1, "ttft_p99": 1.5, "prompt_tokens_p99": 4096.0
}  # fmt: skip
GAPS: dict[str, Any] = SLOW_TPOT | {"itl": 0.02, "itl_p50": 0.02, "itl_p99": 0.3,
                                    "step_tokens_p99": 500.0}  # fmt: skip


def cut_off(seen: Signals, bound: Bound, *names: str) -> Signals:
    """These quantiles lie beyond the histogram's outermost buckets."""
    cut = {name: replace(seen[name], bound=bound) for name in names}
    return replace(seen, readings={**seen.readings, **cut})


def judged(seen: Signals) -> Diagnosis:
    return diagnose(seen, SLOS)


def test_below_the_first_bucket_the_mean_says_more_than_its_bound() -> None:
    """Gaps below 10 ms in the usual case: 15 ms are not 1.5 times as much, but nearly four."""
    fast = GAPS | {"itl": 0.004, "itl_p50": 0.01, "itl_p99": 0.015}
    assert not judged(signals(**fast)).node("4.interference").firing
    node = judged(cut_off(signals(**fast), "≤", "itl_p50")).node("4.interference")
    assert node.firing
    assert node.value == pytest.approx(3.75)
    quick = TAIL | {"ttft": 0.05, "ttft_p50": 0.25}
    assert not judged(signals(**quick)).node("3c").firing
    assert judged(cut_off(signals(**quick), "≤", "ttft_p50")).node("3c").value == pytest.approx(30)


def test_a_mean_above_the_first_bucket_does_not_raise_a_median_in_it() -> None:
    node = judged(cut_off(signals(**TAIL | {"ttft": 0.4}), "≤", "ttft_p50")).node("3c")
    assert node.value == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("planted", "name", "key"),
    [
        (TAIL | {"ttft_p99": 0.5}, "ttft", "3c"),
        (TAIL | {"prompt_tokens_p99": 300.0}, "prompt_tokens", "3c"),
        (GAPS | {"itl_p99": 0.03}, "itl", "4.interference"),
    ],
)
def test_a_tail_beyond_the_last_bucket_may_be_any_longer(
    planted: dict[str, Any], name: str, key: str
) -> None:
    assert judged(signals(**planted)).node(key).state is State.OK
    node = judged(cut_off(signals(**planted), "≥", f"{name}_p99")).node(key)
    assert (node.state, node.missing) == (State.CANT_TELL, (f"{name}_p99",))
    assert "the histogram ends there" in node.how_to_get


@pytest.mark.parametrize(("planted", "name", "key"), [(TAIL, "ttft", "3c"),
                                                     (GAPS, "itl", "4.interference")])  # fmt: skip
def test_a_tail_that_is_long_enough_as_far_as_it_is_seen_fires(
    planted: dict[str, Any], name: str, key: str
) -> None:
    assert judged(cut_off(signals(**planted), "≥", f"{name}_p99")).node(key).firing


def test_a_tail_that_is_not_why_is_not_asked_for() -> None:
    """Prompts are known to be about equal, or the median is late as well."""
    equal = signals(**TAIL | {"ttft_p99": 0.5, "prompt_tokens_p99": 300.0})
    assert judged(cut_off(equal, "≥", "ttft_p99")).node("3c").state is State.OK
    late = signals(**TAIL | {"ttft_p99": 0.9, "ttft_p50": 0.7, "ttft": 0.7})
    assert judged(cut_off(late, "≥", "ttft_p99")).node("3c").state is State.OK


@pytest.mark.parametrize(("planted", "key"), [(TAIL, "3c"), (GAPS, "4.interference")])
def test_what_a_bucket_cuts_off_is_no_certainty(planted: dict[str, Any], key: str) -> None:
    parts = {"kind_s": {"mixed": 30.0, "decode": 30.0}}
    whole = signals(**planted, breakdowns=parts)
    name = "ttft_p50" if key == "3c" else "itl_p50"
    for seen, sure in (
        (whole, Confidence.HIGH),
        (cut_off(whole, "≤", name), Confidence.LIKELY),
    ):
        history = History()
        looks = [diagnose(seen, SLOS, history).node(key) for _ in range(3)]
        assert looks[-1].confidence is sure


def test_an_slo_in_the_first_bucket_says_what_is_known_and_what_it_is_judged_by() -> None:
    seen = cut_off(signals(tpot=0.004, tpot_p95=0.01), "≤", "tpot_p95")
    node = diagnose(seen, Slos((Clause("tpot", 0.005),))).node("4")
    assert node.state is State.OK
    assert "tpot_p95 ≤10 ms (mean 4 ms)" in node.summary


def test_a_cap_that_is_not_told_is_possible_at_most() -> None:
    history = History()
    looks = [diagnose(signals(**STEADY), SLOS, history).node("3a.seq_cap") for _ in range(3)]
    assert looks[-1].firing
    assert looks[-1].confidence is Confidence.POSSIBLE


def test_prefix_caching_that_is_off_is_a_possible_cause_at_most() -> None:
    """Whether prompts share prefixes cannot be seen while nothing looks them up."""
    node = judged(signals(**PREFILL, config={"enable_prefix_caching": "False"})).node(
        "3b.cache_off"
    )
    assert node.confidence is Confidence.POSSIBLE
    assert "none gained where prompts share nothing" in node.levers[0].cost


@pytest.mark.parametrize(("p99", "proposed"), [(300.0, False), (4096.0, True), (None, True)])
def test_a_shorter_context_is_proposed_only_where_long_requests_may_exist(
    p99: float | None, proposed: bool
) -> None:
    node = judged(signals(**QUEUE | {"kv_usage": 0.99, "prompt_tokens_p99": p99})).node("3a.kv")
    assert ("max_model_len down" in [lever.title for lever in node.levers]) is proposed


FULL_STEPS: dict[str, Any] = QUEUE | {"step_tokens": 500.0}


def test_larger_steps_are_proposed_only_while_itl_has_room() -> None:
    room = judged(signals(**FULL_STEPS)).node("3a.token_budget")
    assert [lever.title for lever in room.levers] == ["chunk_size up"]
    none = judged(signals(**FULL_STEPS | SLOW_TPOT)).node("3a.token_budget")
    assert [lever.title for lever in none.levers] == ["more replicas"]
    assert "raising chunk_size" in none.will_not_help[-1]
    unknown = diagnose(signals(**FULL_STEPS), Slos((Clause("ttft", 0.5),))).node("3a.token_budget")
    assert [lever.title for lever in unknown.levers] == ["chunk_size up"]
    assert "no SLO tells whether ITL has room for it" in unknown.levers[0].cost


@pytest.mark.parametrize(
    ("power", "thermal", "state"),
    [
        (3e8, None, State.WARNING),
        (None, 3e8, State.WARNING),
        (0.0, None, State.CANT_TELL),
        (0.0, 0.0, State.OK),
    ],
)
def test_one_cap_shows_that_clocks_are_held_down_and_none_that_they_are_not(
    power: float | None, thermal: float | None, state: State
) -> None:
    seen = signals(**SLOW_TPOT | {"power_throttle": power, "thermal_throttle": thermal})
    assert judged(seen).node("4.throttled").state is state


@pytest.mark.parametrize(("p95", "state"), [(0.4, State.CANT_TELL), (2.0, State.CRITICAL)])
def test_an_slo_beyond_the_last_bucket_is_missed_only_where_that_bucket_already_is(
    p95: float, state: State
) -> None:
    node = judged(cut_off(signals(ttft_p95=p95), "≥", "ttft_p95")).node("3")
    assert node.state is state
    assert "≥" in node.summary
