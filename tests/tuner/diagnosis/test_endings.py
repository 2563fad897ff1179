"""Node 2.length: answers cut off by max_tokens, against those that end where they should."""

from __future__ import annotations

import pytest

from storage.sources.base import Outcome
from tests.tuner.diagnosis.cases import SLOS, signals, without
from tuner.diagnosis import State, diagnose

FIXED = {"stop": 0.0, "length": 100.0}


@pytest.mark.parametrize(
    ("ended", "asked", "answered", "state"),
    [
        (FIXED, 64.0, 64.0, State.OK),  # a bench's fixed output length
        (FIXED, 64.0, 40.0, State.WARNING),  # cut before the clients' own limit
        (FIXED, None, 40.0, State.CANT_TELL),  # the limits are not exported
        ({"stop": 70.0, "length": 30.0}, 64.0, 64.0, State.WARNING),  # a limit too low for some
        ({"length": 60.0, "abort": 40.0}, 64.0, 45.0, State.OK),  # some gave up
        ({"length": 60.0, "abort": 40.0}, 64.0, 30.0, State.WARNING),  # cut before their own
    ],
)
def test_answers_that_end_at_their_own_limit_are_no_fault(
    ended: dict[str, float], asked: float | None, answered: float, state: State
) -> None:
    look = signals(breakdowns={"finished_by": ended}, asked_tokens=asked, answer_tokens=answered)
    node = diagnose(look, SLOS).node("2.length")
    assert node.state is state
    assert bool(node.levers) == state.firing


def test_answers_without_any_limit_are_cut_by_the_context() -> None:
    look = signals(breakdowns={"finished_by": FIXED}, answer_tokens=64.0)
    look = without(look, "asked_tokens", outcome=Outcome.NO_TRAFFIC)
    node = diagnose(look, SLOS).node("2.length")
    assert node.state is State.WARNING
    assert "max_model_len" in node.summary
