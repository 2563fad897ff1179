"""Hysteresis and confidence: when a node fires, when it is cleared, how sure it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuner.diagnosis.cases import SLOS, SLOW_TPOT, signals
from tuner.diagnosis import Confidence, History, State, diagnose


def test_fires_after_two_evaluations_and_clears_after_three_with_margin() -> None:
    history = History()
    states = []
    for events in (6.0, 6.0, 0.95, 0.0, 0.0, 0.0):
        finished = 600.0 if events == 0.95 else 100.0
        look = signals(preemptions=events, finished=finished)
        states.append(diagnose(look, SLOS, history).node("6").state.firing)
    assert states == [False, True, True, True, False, False]


def test_clearing_takes_a_margin() -> None:
    history = History()
    high = signals(**SLOW_TPOT)
    for _ in range(2):
        diagnose(high, SLOS, history)
    for _ in range(5):  # just under the bound: met, but without margin
        node = diagnose(signals(tpot_p95=0.049), SLOS, history).node("4")
        assert node.state is State.WARNING
    for _ in range(3):
        node = diagnose(signals(tpot_p95=0.03), SLOS, history).node("4")
    assert node.state is State.OK


def test_first_sight_is_pending() -> None:
    node = diagnose(signals(preemptions=6.0), SLOS, History()).node("6")
    assert (node.state, node.pending) == (State.OK, True)


def test_confidence_grows_with_evaluations_and_falls_with_few_requests() -> None:
    history = History()
    look = signals(preemptions=20.0)
    found = [diagnose(look, SLOS, history).node("6").confidence for _ in range(3)]
    assert found == [None, Confidence.LIKELY, Confidence.HIGH]
    assert diagnose(look, SLOS).node("6").confidence is Confidence.LIKELY
    few = signals(preemptions=3.0, finished=5.0)
    assert diagnose(few, SLOS).node("6").confidence is Confidence.POSSIBLE


@pytest.mark.parametrize(
    ("bucket", "confidence"),
    [((0.5, 1.0), Confidence.HIGH), ((0.25, 1.0), Confidence.LIKELY), (None, Confidence.HIGH)],
)
def test_a_quantile_in_the_slos_own_bucket_is_no_certainty(
    bucket: tuple[float, float] | None, confidence: Confidence
) -> None:
    """0.9 s, interpolated: where the bucket begins below the bound, so may the quantile."""
    look = signals(ttft_p95=0.9)
    within = replace(look["ttft_p95"], bucket=bucket)
    look = replace(look, readings={**look.readings, "ttft_p95": within})
    history = History()
    found = [diagnose(look, SLOS, history).node("3") for _ in range(3)]
    assert found[-1].firing
    assert found[-1].confidence is confidence
