"""The joint search on a synthetic server that fails: what is tried again, and what ends a study."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuner.search.synthetic import (
    DEFAULTS,
    FakeTarget,
    Silent,
    Surface,
    search_on,
)
from tuner.errors import UserError
from tuner.measure import Measurement, summarize
from tuner.search.budget import parse_budget
from tuner.search.optimize import FAILURE_LIMIT, optimize
from tuner.targets.base import TargetError

BUDGET = parse_budget("22 trials")


def test_a_transient_failure_is_tried_once_more() -> None:
    target = FakeTarget(crash_kind="transient")
    attempts = {"left": 1}

    def crash_once(config: object) -> bool:
        attempts["left"] -= 1
        return attempts["left"] == 0

    target.crashes = crash_once
    search = search_on(Surface(target), budget=BUDGET)
    optimize(search)
    assert all(o.ok for o in search.ledger.outcomes)
    assert target.applied[0] == target.applied[1] == DEFAULTS


def test_repeated_failure_has_a_limit() -> None:
    target = FakeTarget(crashes=lambda c: c != DEFAULTS)
    search = search_on(Surface(target), budget=parse_budget("100 trials"))
    decision = optimize(search)
    assert len(search.ledger.outcomes) == 2 + FAILURE_LIMIT
    assert decision.answer == "none_feasible"
    assert isinstance(search.events, Silent)
    assert "out of memory" in search.events.notes[-1]


@pytest.mark.parametrize("at", [1, 2])
def test_a_candidate_that_crashes_when_confirmed_is_none(at: int) -> None:
    """at: of its confirming runs, the one that crashes."""
    target = FakeTarget()
    search = search_on(Surface(target), budget=BUDGET)

    def crashes(config: dict[str, object]) -> bool:
        made = [o for o in search.ledger.outcomes if o.stage == "confirm" and o.config == config]
        begun = any(o.stage == "confirm" for o in search.ledger.outcomes)
        return begun and config != DEFAULTS and len(made) >= at - 1

    target.crashes = crashes
    decision = optimize(search)
    confirmed = [o for o in search.ledger.outcomes if o.stage == "confirm"]
    crashed = [o.config for o in confirmed if not o.ok]
    assert crashed
    assert all(crashed.count(config) == 1 for config in crashed)
    assert decision.best_config is None


def test_failed_baseline_ends_the_study_with_reason_and_log() -> None:
    search = search_on(Surface(FakeTarget(crashes=lambda c: True)), budget=BUDGET)
    with pytest.raises(UserError, match=r"baseline failed: out of memory") as caught:
        optimize(search)
    assert "last words" in str(caught.value)
    assert len(search.ledger.outcomes) == 1


def test_a_server_that_answers_errors_is_no_baseline() -> None:
    surface = Surface(FakeTarget(), dead=lambda c: True)
    with pytest.raises(UserError, match="every request failed: HTTP 500: boom"):
        optimize(search_on(surface, budget=BUDGET))


def test_failing_requests_never_win() -> None:
    """A server that refuses all under some settings looks fast there; it must never be chosen."""
    surface = Surface(FakeTarget(), dead=lambda c: c["chunk_size"] < 400)
    search = search_on(surface, budget=BUDGET)
    decision = optimize(search)
    assert float(decision.chosen_config["chunk_size"]) >= 400
    dead = [o for o in search.ledger.outcomes if o.config["chunk_size"] < 400]
    assert dead
    assert all(o.state == "failed" for o in dead)


def test_a_window_too_short_for_the_load_is_told_with_what_to_change() -> None:
    surface = Surface(FakeTarget())

    def nothing_in_window(*words: object, **named: object) -> Measurement:
        made = surface(*words, **named)  # type: ignore[arg-type]
        return summarize(replace(made, records=[]), None)

    search = search_on(surface, budget=BUDGET)
    search = replace(search, lab=replace(search.lab, measure=nothing_in_window))
    with pytest.raises(UserError, match="larger --budget or --duration, a smaller --workload"):
        optimize(search)


def test_a_lost_server_ends_the_search_at_once() -> None:
    target = FakeTarget()
    surface = Surface(target)

    def gone(config: object) -> bool:
        if surface.calls >= 4:
            raise TargetError("the engine was restarted", gone=True)
        return False

    target.crashes = gone
    search = search_on(surface, budget=BUDGET)
    with pytest.raises(TargetError, match="restarted"):
        optimize(search)
    assert len(search.ledger.outcomes) == 4


def test_a_measurement_on_a_server_that_was_restarted_meanwhile_is_not_kept() -> None:
    surface = Surface(FakeTarget(ends_in_measurement=2, ends_for_good=True))
    search = search_on(surface, budget=BUDGET)
    with pytest.raises(TargetError, match="ended by itself"):
        optimize(search)
    assert surface.calls == 2
    assert [outcome.state for outcome in search.ledger.outcomes] == ["ok"]


def test_a_measurement_on_a_server_that_ended_is_made_again() -> None:
    surface = Surface(FakeTarget(ends_in_measurement=2))
    search = search_on(surface, budget=BUDGET)
    optimize(search)
    outcomes = search.ledger.outcomes
    assert surface.calls == len(outcomes) + 1
    assert all(outcome.ok for outcome in outcomes)
