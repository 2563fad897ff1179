"""Noise between runs: learned over all repeated configurations, assumed where none was repeated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.stats.load import Floats, ar1
from tuner.stats import (
    Estimate,
    RunNoise,
    compare_rates,
    mean_estimate,
    mean_of_runs,
    quantile_estimate,
    run_noise,
    run_noises,
    share_estimate,
)
from tuner.stats.runs import DEFAULT_SD, FEWEST_DEGREES

REPEATS = 200
LOOSE = 0.031
"""Two standard errors of a coverage of 95 % over that many."""

SIGMA = 0.5
LENGTH = 150


def exact(value: float, unit: str = "s") -> Estimate:
    return Estimate(value, value, value, 100, unit, "")


def runs_of(rng: np.random.Generator, count: int, between: float) -> list[Floats]:
    levels = SIGMA * ar1(rng, count, LENGTH, 0.5) + between * rng.normal(size=(count, 1))
    return list(np.exp(levels))


def test_nothing_repeated_is_the_stated_default() -> None:
    assert run_noise([]) == RunNoise(DEFAULT_SD, FEWEST_DEGREES)
    assert run_noise([[exact(1.0)], [exact(9.0)]]) == RunNoise()
    assert run_noise([[exact(math.inf), exact(1.0)]]) == RunNoise()


def test_degrees_of_all_repeated_configurations_add_up() -> None:
    rng = np.random.default_rng(1)
    groups = [[exact(v) for v in level * np.exp(0.03 * rng.normal(size=3))]
              for level in np.geomspace(0.01, 10, 60)]  # fmt: skip
    found = run_noise(groups)
    assert found.degrees == 120
    assert found.sd_log == pytest.approx(0.03, rel=0.2)


def test_few_degrees_are_filled_up_with_the_default() -> None:
    found = run_noise([[exact(1.0), exact(math.exp(0.2))]])  # variance 0.02, one degree
    assert found.degrees == FEWEST_DEGREES
    assert found.sd_log == pytest.approx(math.sqrt((3 * DEFAULT_SD**2 + 0.02) / 4))


def test_what_the_runs_own_intervals_explain_is_no_noise_between_them() -> None:
    rng = np.random.default_rng(2)
    groups = [[Estimate(v, v * math.exp(-0.196), v * math.exp(0.196), 100, "s", "")
               for v in np.exp(0.1 * rng.normal(size=2))] for _ in range(60)]  # fmt: skip
    assert run_noise(groups).sd_log < 0.085
    assert run_noise(groups, with_sampling=True).sd_log == pytest.approx(0.1, rel=0.15)


def test_noise_by_figure() -> None:
    found = run_noises([[{"ttft_p95": exact(1.0)}, {"ttft_p95": exact(1.1), "rps": exact(3.0)}]])
    assert found["ttft_p95"].sd_log != DEFAULT_SD
    assert found["rps"] == RunNoise()


def test_two_runs_far_from_a_bound_decide() -> None:
    """806 and 975 ms against 500 ms: more than one degree of freedom, and no infinite interval."""
    rng = np.random.default_rng(3)
    both = np.concatenate([ms / 1e3 * np.exp(0.1 * rng.normal(size=130)) for ms in (806, 975)])
    found = quantile_estimate(both, 0.5, "s", runs=[130, 130])
    assert 0.5 < found.low < 0.806
    assert 0.975 < found.high < 1.5
    known = quantile_estimate(both, 0.5, "s", runs=[130, 130], noise=RunNoise(0.1, 20))
    assert found.low < known.low < known.high < found.high


def test_a_configuration_that_scatters_more_than_all_others_keeps_its_own_spread() -> None:
    quiet = RunNoise(0.02, 20)
    alike = mean_of_runs([exact(100.0, "req/s"), exact(103.0, "req/s")], noise=quiet)
    apart = mean_of_runs([exact(60.0, "req/s"), exact(140.0, "req/s")], noise=quiet)
    assert alike.high / alike.low < 1.1
    assert apart.low < 60 < 140 < apart.high


def test_one_run_with_a_known_noise_is_less_sure_than_without() -> None:
    values = np.exp(0.1 * np.random.default_rng(4).normal(size=200))
    alone = quantile_estimate(values, 0.95, "s")
    within = quantile_estimate(values, 0.95, "s", noise=RunNoise(0.1, 10))
    assert within.low < alone.low < alone.high < within.high
    hits = (values > 1).astype(float)
    share, noisy = share_estimate(hits), share_estimate(hits, noise=RunNoise(0.3, 10))
    assert noisy.low < share.low < share.high < noisy.high


@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("between", [0.0, 0.05, 0.15])
def test_coverage_with_noise_learned_from_the_whole_study(runs: int, between: float) -> None:
    """Four other configurations were measured twice each."""
    rng = np.random.default_rng(5)
    covered = dict.fromkeys(("p95", "mean", "rate"), 0)
    sigma = math.hypot(SIGMA, between)
    p95, mean = math.exp(1.645 * sigma), math.exp(sigma**2 / 2)
    for _ in range(REPEATS):
        groups = [runs_of(rng, 2, between) for _ in range(4)] + [runs_of(rng, runs, between)]
        tails = [[quantile_estimate(one, 0.95, "s") for one in group] for group in groups]
        means = [[mean_estimate(one, "s") for one in group] for group in groups]
        values, lengths = np.concatenate(groups[-1]), [LENGTH] * runs
        tail, middle = run_noise(tails), run_noise(means)
        for key, found, truth in (
            ("p95", quantile_estimate(values, 0.95, "s", runs=lengths, noise=tail), p95),
            ("mean", mean_estimate(values, "s", runs=lengths, noise=middle), mean),
            ("rate", mean_of_runs(means[-1], noise=middle), mean),
        ):
            covered[key] += found.low <= truth <= found.high
    assert min(covered.values()) / REPEATS >= 0.93 - LOOSE


@pytest.mark.parametrize(("runs", "between"), [(2, 0.1), (3, 0.1), (5, 0.15)])
def test_coverage_of_runs_that_stand_alone(runs: int, between: float) -> None:
    """While they differ by no more than the default says, or are many."""
    rng = np.random.default_rng(6)
    sigma = math.hypot(SIGMA, between)
    found = [
        quantile_estimate(
            np.concatenate(runs_of(rng, runs, between)), 0.95, "s", runs=[LENGTH] * runs
        )
        for _ in range(REPEATS)
    ]
    truth = math.exp(1.645 * sigma)
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.93 - LOOSE


def test_a_known_noise_lets_few_pairs_decide() -> None:
    a, b = [100.0, 104.0], [120.0, 117.0]
    assert compare_rates(a, b).outcome == "inconclusive"
    known = compare_rates(a, b, noise=RunNoise(0.03, 12))
    assert known.outcome == "improved"
    assert compare_rates(a, b, noise=RunNoise(0.3, 12)).outcome == "inconclusive"
    assert compare_rates(a[:1], b[:1], noise=RunNoise(0.03, 12)).outcome == "improved"


def test_known_noise_raises_no_false_alarms() -> None:
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(400):
        groups = [[exact(v) for v in rng.lognormal(0, 0.1, 2)] for _ in range(6)]
        noise = run_noise(groups, with_sampling=True)
        a, b = rng.lognormal(0, 0.1, 2), rng.lognormal(0, 0.1, 2)
        alarms += compare_rates(list(a), list(b), noise=noise).outcome in ("improved", "worse")
    assert alarms / 400 <= 0.08
