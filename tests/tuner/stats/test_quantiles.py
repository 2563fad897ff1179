"""Quantiles and their intervals: observed values, known sample sizes, coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.stats.load import ar1
from tuner.stats import Estimate, exceedance_test, quantile_estimate, samples_needed, share_estimate


def test_estimate_is_an_observed_value() -> None:
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    assert [quantile_estimate(values, q, "s").value for q in (0.2, 0.5, 0.95)] == [1, 3, 5]
    assert quantile_estimate(np.arange(1.0, 101), 0.95, "s").value == 95


def test_five_samples_leave_the_p95_open_above() -> None:
    estimate = quantile_estimate(np.arange(1.0, 6), 0.95, "s")
    assert estimate.value == 5
    assert estimate.high == math.inf


def test_failures_are_infinite_not_left_out() -> None:
    values = np.concatenate([np.ones(90), np.full(10, math.inf)])
    assert quantile_estimate(values, 0.95, "s").value == math.inf
    assert quantile_estimate(values, 0.5, "s").value == 1


def test_nothing_measured_is_no_zero() -> None:
    estimate = quantile_estimate(np.empty(0), 0.95, "s")
    assert not estimate.measured
    assert estimate.n == 0


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [40, 200])
def test_interval_covers_the_true_quantile(q: float, n: int) -> None:
    rng = np.random.default_rng(7)
    truth = math.exp(0.8 * _normal_quantile(q))
    runs = [quantile_estimate(rng.lognormal(0, 0.8, n), q, "s") for _ in range(600)]
    covered = np.mean([run.low <= truth <= run.high for run in runs])
    assert covered >= 0.95 - 2.5 * math.sqrt(0.95 * 0.05 / 600)


def test_dependent_samples_need_the_wider_interval() -> None:
    """Gaps of one request move together: with n as it is the interval would miss too often."""
    rng = np.random.default_rng(11)
    truth = math.exp(math.sqrt(0.5**2 + 0.1**2) * _normal_quantile(0.9))
    naive, wide = 0, 0
    for _ in range(200):
        level = rng.normal(0, 0.5, 60)
        groups = [np.exp(level[i] + rng.normal(0, 0.1, 20)) for i in range(60)]
        values = np.concatenate(groups)
        shuffled = quantile_estimate(rng.permutation(values), 0.9, "s")
        clustered = quantile_estimate(values, 0.9, "s", sizes=np.full(60, 20.0))
        naive += shuffled.low <= truth <= shuffled.high
        wide += clustered.low <= truth <= clustered.high
    assert wide >= 180
    assert naive < 140


def test_samples_that_a_pass_takes() -> None:
    assert [exceedance_test(n, 0, 0.95) for n in (58, 59)] == ["open", "below"]
    assert [exceedance_test(n, 0, 0.99) for n in (298, 299)] == ["open", "below"]


def test_test_decides_both_ways_and_no_more_often_wrong_than_said() -> None:
    assert exceedance_test(100, 30, 0.95) == "above"
    assert exceedance_test(100, 5, 0.95) == "open"
    assert exceedance_test(0, 0, 0.95) == "open"
    over = np.random.default_rng(3).binomial(200, 0.05, 2000)
    wrong = np.mean([exceedance_test(200, int(k), 0.95) == "below" for k in over])
    assert wrong <= 0.05 + 0.013


def test_more_samples_needed() -> None:
    more = samples_needed(20, 0, 0.95)
    assert more is not None
    assert 39 <= more <= 55
    assert samples_needed(1000, 50, 0.95) is None


def _normal_quantile(q: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(q)


def test_what_samples_are_worth_and_what_is_counted_on_have_a_name_each() -> None:
    rng = np.random.default_rng(3)
    values = np.exp(0.5 * ar1(rng, 1, 300, 0.8)[0])
    found = quantile_estimate(values, 0.5, "s")
    assert found.effective_n is not None
    assert found.counted_n is not None
    assert found.counted_n < found.effective_n < 300
    worth = f"{found.counted_n} of {found.effective_n:.3g} effective samples counted"
    assert found.method.endswith(worth)
    assert Estimate.from_dict(found.as_dict()) == found
    share = share_estimate((values > 1.2) * 1.0)
    assert f"{share.counted_n} of " in share.method
