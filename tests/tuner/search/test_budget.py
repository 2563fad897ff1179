"""Budgets: what they say, and that what is planned fits into them."""

from __future__ import annotations

import pytest

from tuner.errors import UserError
from tuner.search.budget import BASELINES, MIN_TRIALS, parse_budget, plan, shortage


def test_both_forms() -> None:
    assert parse_budget("5m").total_s == 300
    assert parse_budget("90s").total_s == 90
    assert parse_budget("20 trials").trials == 20
    assert parse_budget("20trials").trials == 20


@pytest.mark.parametrize(
    "text", ["", "5", "five minutes", "4 trials", "-5m", "0s", "9" * 6000 + " trials", "9" * 6000]
)
def test_faults(text: str) -> None:
    with pytest.raises(UserError, match="--budget") as told:
        parse_budget(text)
    assert len(str(told.value)) < 300


def test_a_time_out_of_bounds_is_told_so() -> None:
    with pytest.raises(UserError, match="must be more than 0"):
        parse_budget("0s")


@pytest.mark.parametrize("seconds", [90, 120, 300, 600, 3600, 7200])
@pytest.mark.parametrize("spent_s", [0.0, 45.0])
def test_what_is_planned_fits(seconds: int, spent_s: float) -> None:
    made = plan(parse_budget(f"{seconds}s"), spent_s)
    measurements = BASELINES + made.search + made.confirm_slots
    assert measurements >= MIN_TRIALS
    assert spent_s + measurements * made.slot_s <= max(seconds, spent_s + MIN_TRIALS * made.slot_s)
    assert made.search >= 1


def test_trials_are_split_exactly() -> None:
    for count in range(MIN_TRIALS, 60):
        made = plan(parse_budget(f"{count} trials"))
        assert BASELINES + made.search + made.confirm_slots == count


@pytest.mark.parametrize("text", ["7m", "10m", "20m", "2h", "27 trials"])
def test_a_usual_budget_confirms_the_best_three(text: str) -> None:
    made = plan(parse_budget(text))
    assert made.finalists == 3
    assert made.confirm_rounds >= 5
    assert made.search >= 10


def test_a_short_budget_confirms_one_in_longer_windows() -> None:
    short, usual = plan(parse_budget("5m")), plan(parse_budget("7m"))
    assert (short.finalists, short.confirm_rounds) == (1, 5)
    assert short.window_s > 8
    assert usual.window_s > 9


def test_given_durations_are_kept() -> None:
    made = plan(parse_budget("5m"), window_s=20.0, warmup_s=0.0)
    assert (made.window_s, made.warmup_s) == (20.0, 0.0)


def test_a_budget_that_two_baselines_eat_is_told() -> None:
    made = plan(parse_budget("100s"), window_s=6.0, warmup_s=3.0, loads=4)
    said = shortage(parse_budget("100s"), made, 2, 8)
    assert said.startswith("the two baselines alone may take 168 s, and the budget has 100 s")
    assert "--budget of about 420s" in said


def test_a_budget_without_room_for_a_confirmation_is_told_and_an_ample_one_is_not() -> None:
    for count in range(MIN_TRIALS, 40):
        budget = parse_budget(f"{count} trials")
        said = shortage(budget, plan(budget), 2)
        assert bool(said) == (count < 10)
    assert '"10 trials"' in shortage(parse_budget("5 trials"), plan(parse_budget("5 trials")), 2)
    assert not shortage(parse_budget("10m"), plan(parse_budget("10m")), 2)


def test_a_restart_is_part_of_what_a_trial_takes() -> None:
    live, restarted = plan(parse_budget("20m")), plan(parse_budget("20m"), change_s=23.0)
    assert restarted.slot_s == pytest.approx(live.slot_s, rel=0.1)
    assert restarted.window_s < live.window_s - 20
    changes_s = (restarted.search + restarted.confirm_slots) * restarted.slot_s
    assert restarted.baselines_s + changes_s <= 1200 + 23


@pytest.mark.parametrize(("change_s", "window_s"), [(0.0, 6.0), (8.0, 8.0), (90.0, 15.0)])
def test_a_short_window_is_worth_its_restart(change_s: float, window_s: float) -> None:
    assert plan(parse_budget("90s"), change_s=change_s).window_s == window_s


def test_a_budget_that_starts_eat_is_told() -> None:
    budget = parse_budget("4m")
    assert "240 s" not in shortage(budget, plan(budget), 2)
    said = shortage(budget, plan(budget, change_s=220.0), 2)
    assert "the two baselines alone may take 259 s" in said
