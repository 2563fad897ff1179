"""Intervals where too few independent samples are left: finite, sensible, wider under drift."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.stats.load import Floats, ar1, lock_step
from tuner.stats import quantile_estimate
from tuner.stats.sections import SECTIONS, sections_reach, tail_reach


def steady_500ms(seed: int = 1, n: int = 133) -> Floats:
    return 0.5 * np.exp(lock_step(np.random.default_rng(seed), 1, n)[0] - 0.12)


def test_steady_requests_in_lock_step_have_a_finite_interval() -> None:
    found = quantile_estimate(steady_500ms(), 0.95, "s")
    assert found.effective_n is not None
    assert found.effective_n < 59  # no order statistic bounds it
    assert "sections and tail" in found.method
    assert 0.4 < found.low < found.value < found.high < 0.65


def test_a_machine_that_gets_slower_has_the_wider_interval_that_holds_its_drift() -> None:
    steady = 0.25 * np.exp(0.05 * np.random.default_rng(2).normal(size=133))
    drifting = steady * np.linspace(1, 2, 133)
    for q in (0.5, 0.95):
        calm, slower = (quantile_estimate(x, q, "s") for x in (steady, drifting))
        parts = [float(np.quantile(x, q)) for x in np.array_split(drifting, SECTIONS)]
        assert math.log(slower.high / slower.low) > 3 * math.log(calm.high / calm.low)
        assert slower.high > parts[-1]
        assert slower.low <= parts[0] * 1.01


def test_one_effective_sample_is_one() -> None:
    found = quantile_estimate(0.25 * np.linspace(1, 2, 133), 0.5, "s")
    assert "1 effective sample" in found.method
    assert "samples" not in found.method
    assert 0 < found.low < 0.3
    assert 0.45 < found.high < 1.0


def test_what_independent_samples_leave_open_stays_open() -> None:
    values = steady_500ms()
    assert quantile_estimate(values[:58], 0.95, "s").high == math.inf
    assert math.isfinite(quantile_estimate(values[:59], 0.95, "s").high)
    assert quantile_estimate(values, 0.99, "s").high == math.inf
    assert quantile_estimate(values[:4], 0.5, "s").high == math.inf


def test_the_interval_is_never_narrower_than_that_of_independent_samples() -> None:
    """A quiet run with two slow answers: its sections agree, the order statistics know better."""
    values = steady_500ms()
    values[[40, 90, 91]] = 2.0
    in_order = quantile_estimate(values, 0.95, "s")
    shuffled = quantile_estimate(np.random.default_rng(3).permutation(values), 0.95, "s")
    assert in_order.high >= shuffled.high


def test_failures_are_never_extrapolated() -> None:
    scattered, burst = steady_500ms(), steady_500ms()
    scattered[60] = math.inf
    burst[60:64] = math.inf  # more than one in twenty of their section
    assert math.isfinite(quantile_estimate(scattered, 0.95, "s").high)
    assert quantile_estimate(burst, 0.95, "s").high == math.inf
    many = steady_500ms()
    many[-30:] = math.inf
    found = quantile_estimate(many, 0.95, "s")
    assert (found.value, found.high) == (math.inf, math.inf)
    assert found.low < 0.6


def test_reach_of_equal_and_of_scattered_sections() -> None:
    assert sections_reach(np.ones(50), 0.5, 0.025) == 0
    halves = np.repeat([1.0, math.e], 50)
    assert 0.4 < sections_reach(halves, 0.5, 0.025) < 2
    assert sections_reach(np.ones(50), 0.5, 0.025, np.full(10, 5.0), [4, 6]) == 0
    assert sections_reach(np.ones(3), 0.5, 0.025) == 0  # one request a section
    assert sections_reach(np.ones(1), 0.5, 0.025) == math.inf
    apart = np.concatenate([np.ones(50), 2 * np.ones(50)])
    assert sections_reach(apart, 0.5, 0.025, runs=[50, 50]) == 0  # that is noise between runs


def test_reach_of_a_tail_grows_with_what_is_not_known() -> None:
    values = np.sort(np.random.default_rng(4).exponential(size=400))
    reaches = [tail_reach(values, 0.95, m, 0.025) for m in (5, 20, 60)]
    assert reaches == sorted(reaches, reverse=True)
    assert tail_reach(np.ones(50), 0.95, 5, 0.025) == 0
    assert tail_reach(values, 0.5, 5, 0.025) == 0  # no tail is fitted below the median


@pytest.mark.parametrize("phi", [0.5, 0.8, 0.9])
def test_coverage_of_short_correlated_runs(phi: float) -> None:
    """130 requests, where order statistics end; φ = 0.9 leaves about seven independent ones."""
    series = np.exp(0.3 * ar1(np.random.default_rng(5), 400, 130, phi))
    found = [quantile_estimate(x, 0.95, "s") for x in series]
    truth = math.exp(0.3 * 1.645)
    missed = np.mean([truth > one.high for one in found])
    assert all(math.isfinite(one.high) for one in found)
    assert missed <= 0.025 + 0.02
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.90 - 0.02
