"""A pass by distance from the bound: how often it is false, and when it comes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import nct, norm, t

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.search.budget import parse_budget
from tuner.search.margin import (
    FEWEST_RUNS,
    lower_mean,
    safely_above,
    safely_below,
    upper_bound,
)
from tuner.slo import parse_slos
from tuner.trial import run_trial

Floats = npt.NDArray[np.float64]
STUDIES, REQUESTS, Q = 2_000, 60, 0.95
Draw = Callable[[np.random.Generator, int, int, int], Floats]
"""(rng, studies, runs, requests) → logs of latencies."""


def lognormal(within: float, between: float) -> Draw:
    def draw(rng: np.random.Generator, studies: int, runs: int, n: int) -> Floats:
        return rng.normal(0, within, (studies, runs, n)) + rng.normal(
            0, between, (studies, runs, 1)
        )

    return draw


def exponential(rng: np.random.Generator, studies: int, runs: int, n: int) -> Floats:
    return np.log(rng.exponential(1, (studies, runs, n)))


def autocorrelated(rng: np.random.Generator, studies: int, runs: int, n: int) -> Floats:
    steps = rng.normal(0, 1, (studies, runs, n))
    for i in range(1, n):
        steps[..., i] = 0.9 * steps[..., i - 1] + math.sqrt(1 - 0.81) * steps[..., i]
    return 0.3 * steps


@pytest.mark.parametrize(
    "draw",
    [lognormal(0.1, 0.0), lognormal(0.1, 0.1), lognormal(0.1, 0.5), exponential, autocorrelated],
)
@pytest.mark.parametrize("runs", [3, 5, 8])
def test_a_bound_that_is_the_true_percentile_is_decided_no_more_often_than_nominal(
    draw: Draw, runs: int
) -> None:
    rng = np.random.default_rng(runs)
    bound = float(np.quantile(draw(rng, 1, 4_000, REQUESTS), Q))
    logs = np.sort(draw(rng, STUDIES, runs, REQUESTS), axis=2)
    each = logs[..., math.ceil((1 + Q) / 2 * (REQUESTS + 1)) - 1]
    for confidence in (0.975, 0.99375):
        factor = nct.ppf(confidence, runs - 1, norm.isf(0.025) * math.sqrt(runs))
        bounds = each.mean(axis=1) + factor / math.sqrt(runs) * each.std(axis=1, ddof=1)
        assert upper_bound(list(each[0]), 0.025, confidence) == pytest.approx(bounds[0])
        assert (bounds < bound).mean() <= 1.2 * (1 - confidence)
        typical = logs[..., math.floor((2 * Q - 1) * REQUESTS) - 1]
        error = typical.std(axis=1, ddof=1) / math.sqrt(runs)
        lows = typical.mean(axis=1) - t.ppf(confidence, runs - 1) * error
        assert lower_mean(list(typical[0]), confidence) == pytest.approx(lows[0])
        assert (lows > bound).mean() <= 1.2 * (1 - confidence)


def measured(
    ttft_s: float, runs: int, bound: str, decide: Callable[..., bool] = safely_below
) -> bool:
    surface = Surface(FakeTarget(), ttft=lambda c: ttft_s, noise=0.02)
    lab = search_on(surface, budget=parse_budget("9 trials")).lab
    outcomes = [run_trial(lab, DEFAULTS, stage="confirm", seed=seed) for seed in range(runs)]
    made = [outcome.measurement for outcome in outcomes if outcome.measurement is not None]
    return decide(made, parse_slos([bound]).clauses[0], 0.99)


def test_steady_runs_far_below_pass_and_near_ones_wait() -> None:
    assert measured(0.1, 5, "ttft_p95<500ms")
    assert not measured(0.4, 5, "ttft_p95<500ms")
    assert not measured(0.1, FEWEST_RUNS - 1, "ttft_p95<500ms")
    assert not measured(0.1, 5, "ttft_p95>10ms")
    assert not measured(0.1, 5, "ttft_p99.9<500ms")  # a run has too few requests for that


def test_steady_runs_far_above_fail() -> None:
    assert measured(0.9, 4, "ttft_p95<500ms", safely_above)
    assert not measured(0.45, 4, "ttft_p95<500ms", safely_above)
