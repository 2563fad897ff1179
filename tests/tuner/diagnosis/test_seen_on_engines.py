"""What running engines showed the tree to get wrong, each as it was seen."""

from __future__ import annotations

import pytest

from tests.tuner.diagnosis.cases import SLOS, STEPS, signals
from tuner.diagnosis import History, diagnose

TOKENIZING = {
    "ttft": 0.85, "ttft_p50": 0.86, "ttft_p95": 1.1, "queue": 0.009, "prefill": 0.013,
    "e2e": 0.85, "inference": 0.013,
}  # fmt: skip
THRASHING = {
    "ttft": 0.27, "ttft_p50": 0.36, "ttft_p95": 0.7, "queue": 0.09, "prefill": 0.19, "e2e": 0.37,
    "inference": 0.28, "waiting": 1.0, "waiting_mean": 0.7, "hit_rate": 0.37,
    "hit_rate_before": 0.9, "prompt_tokens_p50": 1500.0, "prompt_tokens_p99": 1990.0,
    "step_tokens_p90": 1900.0, "running_mean": 1.5, "running": 1.0, "busy_s": 3.0,
}  # fmt: skip


def test_a_queue_of_milliseconds_beside_a_slow_front_end_is_no_cause() -> None:
    """9 ms are 40 % of queue + prefill, and 1 % of TTFT."""
    diagnosis = diagnose(signals(**TOKENIZING), SLOS)
    assert [cause.key for cause in diagnosis.causes] == ["3d"]
    assert "41% of queue + prefill and 1% of mean TTFT" in diagnosis.node("3a").summary


def test_who_waits_for_prompts_that_were_cached_before_is_a_symptom() -> None:
    """The step under way is long because its prompt is computed anew."""
    parts = {
        "binding": STEPS, "phase_s": {"forward": 3.0}, "kv_blocks": {"used": 180.0, "cached": 120.0}
    }  # fmt: skip
    diagnosis = diagnose(signals(**THRASHING, breakdowns=parts), SLOS)
    assert [cause.key for cause in diagnosis.causes] == ["3b.thrash"]
    assert diagnosis.node("3a.other").symptom_of == "3b.thrash"
    assert diagnosis.node("3a").symptom_of == "3b.thrash"


@pytest.mark.parametrize(("busy_s", "share"), [(3.2, 0.94), (30.0, 0.1)])
def test_what_the_host_does_between_two_steps_is_in_no_phase(busy_s: float, share: float) -> None:
    """Steps of 1 ms, of which the next begins 9 ms later."""
    parts = {"phase_s": {"prepare": 0.1, "forward": 3.0}}
    slow = {"tpot_p95": 0.2, "itl_p50": 0.08, "itl_p99": 0.09, "busy_s": busy_s}
    diagnosis = diagnose(signals(**slow, breakdowns=parts), SLOS)
    assert diagnosis.node("4.host").value == pytest.approx(share, abs=0.01)
    assert [cause.key for cause in diagnosis.causes] == (["4.host"] if share < 0.6 else ["4"])


def test_a_cache_that_thrashes_on_is_not_cleared_by_forgetting_better_times() -> None:
    """The rate before is that of five windows: after as many it is the low one too."""
    history, parts = History(), {"binding": STEPS, "kv_blocks": {"used": 180.0, "cached": 120.0}}
    firing = []
    for now, before in [(0.37, 0.9)] * 2 + [(0.37, 0.37)] * 9 + [(0.9, 0.4)] * 3 + [(0.4, 0.4)] * 3:
        look = signals(**THRASHING | {"hit_rate": now, "hit_rate_before": before}, breakdowns=parts)
        firing.append(diagnose(look, SLOS, history).node("3b.thrash").firing)
    assert firing == [False, *[True] * 12, *[False] * 4]
