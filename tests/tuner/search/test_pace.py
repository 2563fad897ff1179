"""How long a study still takes: what is left of its time, or of its trials by what one takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuner.report.stored_studies import measured
from tests.tuner.search.synthetic import DEFAULTS, LOAD, MemoryLedger
from tuner.search.budget import Plan, parse_budget
from tuner.search.pace import Pace
from tuner.search.trial import Outcome

PLAN = Plan(10.0, 2.0, search=10, confirm_rounds=3, finalists=2)
OTHER_LOAD = "prompt=9,output=8,rate=10"


def outcome(number: int, spent_s: float, *, load: str = LOAD, ended: str = "") -> Outcome:
    made = measured(DEFAULTS, seed=number, load=load)
    assert made.measurement is not None
    made.measurement.ended_why = ended
    return replace(made, spent_s=spent_s)


def pace_of(budget: str, *outcomes: Outcome) -> Pace:
    ledger = MemoryLedger()
    ledger.outcomes.extend(outcomes)
    return Pace(parse_budget(budget), PLAN, ledger, lambda: 0.0)


def test_of_a_time_what_is_not_used_yet() -> None:
    now_s = [1_000.0]
    pace = Pace(parse_budget("5m"), PLAN, MemoryLedger(), lambda: now_s[0], before_s=40.0)
    assert pace.eta_s() == 260.0
    now_s[0] += 100.0
    assert pace.eta_s() == 160.0
    now_s[0] += 1_000.0
    assert pace.eta_s() == 0.0


def test_of_trials_those_left_by_what_one_takes() -> None:
    assert pace_of("20 trials").eta_s() == pytest.approx(20 * PLAN.slot_s)
    assert pace_of("20 trials", outcome(0, 20.0), outcome(1, 30.0)).eta_s() == 18 * 25.0


def test_the_last_six_trials_tell_what_one_takes() -> None:
    slow = [outcome(number, 100.0) for number in range(4)]
    fast = [outcome(4 + number, 10.0) for number in range(6)]
    assert pace_of("20 trials", *slow, *fast).eta_s() == 10 * 10.0


def test_trials_ended_early_tell_it_only_where_there_are_no_others() -> None:
    early = [outcome(number, 3.0, ended="beaten") for number in range(3)]
    assert pace_of("20 trials", *early).eta_s() == 17 * 3.0
    assert pace_of("20 trials", *early, outcome(3, 12.0)).eta_s() == 16 * 12.0


def test_measurements_of_one_trial_count_together() -> None:
    pace = pace_of("20 trials", outcome(0, 20.0), outcome(0, 30.0, load=OTHER_LOAD))
    assert pace.eta_s() == 19 * 50.0


def test_nothing_is_left_of_what_is_used_up() -> None:
    assert pace_of("5 trials", *(outcome(number, 9.0) for number in range(7))).eta_s() == 0.0
