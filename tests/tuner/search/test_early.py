"""Trials that end before their time: why, when, and what is kept of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tuner.search.synthetic import (
    DEFAULTS,
    FakeTarget,
    LoadAt,
    Surface,
    search_on,
)
from tuner.search.budget import parse_budget
from tuner.search.early import FIRST_LOOK, Beaten
from tuner.search.objective import Objective
from tuner.search.optimize import optimize
from tuner.search.session import measure
from tuner.slo import parse_slos
from tuner.stats import Estimate
from tuner.workload import parse_workload

BUDGET = parse_budget("24 trials")
SLOW = DEFAULTS | {"chunk_size": 4096}


def ends(
    ttft_s: float, slo: str = "ttft_p95<500ms", *, rate: float = 20.0, best: float = 0.0,
    seed: int = 0, seconds: int = 20,
) -> tuple[str, float]:  # fmt: skip
    """(why it ended, at which second) of a run that is looked at every second."""
    surface = Surface(FakeTarget(), ttft=lambda c: ttft_s, rate=lambda c: rate, noise=0.0)
    records = surface._records((DEFAULTS,), np.random.default_rng(seed), 2.0, float(seconds))
    incumbent = Estimate(best, 0.98 * best, 1.02 * best, 9, "tok/s", "m") if best else None
    rule = Beaten(
        parse_slos([slo]), parse_workload("prompt=64,output=8,rate=10"), Objective(), incumbent,
        0.05,
    )  # fmt: skip
    for second in range(1, seconds):
        if rule(LoadAt(records, float(second)), 2.0):
            return rule.why, second
    return "", seconds


def test_a_missed_slo_ends_it_soon_and_says_which() -> None:
    why, second = ends(1.0)
    assert why.startswith("misses ttft_p95<500ms for certain")
    assert second <= 8


def test_a_worse_objective_ends_it() -> None:
    why, second = ends(0.1, rate=20.0, best=320.0)
    assert why.startswith("output_tps is worse than the best so far")
    assert second < 20


@pytest.mark.parametrize(("ttft_s", "best"), [(0.1, 0.0), (0.1, 160.0), (0.1, 100.0), (0.41, 0.0)])
def test_what_is_good_or_near_runs_to_its_end(ttft_s: float, best: float) -> None:
    assert ends(ttft_s, best=best) == ("", 20)


def test_nothing_ends_before_the_warm_up_or_on_few_requests() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 5.0, rate=lambda c: 20.0, noise=0.0)
    records = surface._records((DEFAULTS,), np.random.default_rng(0), 0.0, 20.0)
    rule = Beaten(parse_slos(["ttft_p95<500ms"]), parse_workload("prompt=64,output=8,rate=10"))
    assert not rule(LoadAt(records, 3.0), 4.0)
    assert not rule(LoadAt(records, 5.5), 5.0)
    assert rule.looks.taken == 0
    assert FIRST_LOOK >= 20


def test_the_bound_itself_is_rarely_called_missed() -> None:
    """p95 exactly at the bound, looked at again and again: 1 % of runs may end for it."""
    median = 0.5 / float(np.exp(1.645 * 0.1))
    ended = [bool(ends(median, rate=10.0, seed=seed, seconds=25)[0]) for seed in range(120)]
    assert sum(ended) <= 4


def test_a_second_attempt_is_looked_at_afresh() -> None:
    """Its records are another run's: fewer at first, and none of them seen before."""
    surface = Surface(FakeTarget(), ttft=lambda c: 2.0, rate=lambda c: 20.0, noise=0.0)
    records = surface._records((DEFAULTS,), np.random.default_rng(0), 2.0, 20.0)
    rule = Beaten(parse_slos(["ttft_p95<500ms"]), parse_workload("prompt=64,output=8,rate=10"))
    assert any(rule(LoadAt(records, float(second)), 2.0) for second in range(1, 20))
    spent = rule.looks.taken
    rule.begin()
    assert rule.why == ""
    assert not rule(LoadAt(records[:3], 3.0), 2.0)
    assert any(rule(LoadAt(records, float(second)), 2.0) for second in range(4, 20))
    assert rule.looks.taken > spent


def test_a_trial_that_ended_early_is_a_finished_one_with_figures() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 2.0 if c == SLOW else 0.2)
    search = search_on(surface, budget=BUDGET)
    trial = measure(search, SLOW, "search", 5)
    assert trial.ok
    assert trial.ended_early
    made = trial.parts[0].measurement
    assert made is not None
    assert "misses ttft_p95<500ms" in made.ended_why
    assert made.summary["ttft_p95"].low > 1.0
    reading = search.goal.read(trial, search.trials)
    assert reading.margins[0] > 0
    assert reading.margins[-1] < 0
    assert reading.values[0] is not None


def test_baselines_and_confirmations_always_run_to_their_end() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 2.0)
    search = search_on(surface, budget=BUDGET)
    for stage in ("baseline", "confirm"):
        assert not measure(search, DEFAULTS, stage, 3).ended_early  # type: ignore[arg-type]


def test_ending_early_leaves_more_trials_for_the_same_time() -> None:
    """Most of the space misses the SLO: in five minutes more of it is seen."""

    def seen(first_look: float) -> int:
        surface = Surface(FakeTarget(), ttft=lambda c: 0.2 if c["chunk_size"] < 100 else 1.5)
        search = search_on(surface, budget=parse_budget("5m"))
        if first_look:
            surface.never_stop = True
        optimize(search)
        return len(search.ledger.outcomes)

    assert seen(0) > 1.2 * seen(1)
