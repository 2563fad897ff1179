"""Rates, shares and means: their intervals cover what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.stats import mean_estimate, rate_estimate, share_estimate


def test_rate_counts_only_the_window() -> None:
    times = np.array([0.5, 1.0, 1.5, 2.0, 2.99, 3.0])
    estimate = rate_estimate(times, np.full(6, 10.0), 1.0, 3.0, "tok/s", 6)
    assert estimate.value == pytest.approx(40 / 2)


def test_empty_window_is_not_measured() -> None:
    assert not rate_estimate(np.empty(0), np.empty(0), 3.0, 3.0, "tok/s", 0).measured


def test_no_event_is_a_rate_of_zero() -> None:
    assert rate_estimate(np.empty(0), np.empty(0), 0.0, 3.0, "tok/s", 0).value == 0


def test_rate_interval_covers_the_true_rate() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        times = np.cumsum(rng.exponential(1 / 40, 3000))
        estimate = rate_estimate(times, np.ones(3000), 0, 30, "req/s", 3000)
        covered += estimate.low <= 40 <= estimate.high
    assert covered / 400 >= 0.92


def test_share_interval_is_exact_at_the_edges() -> None:
    none = share_estimate(np.zeros(30))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 30))
    assert share_estimate(np.ones(30)).high == 1
    assert not share_estimate(np.empty(0)).measured


def test_share_interval_covers() -> None:
    hits = np.random.default_rng(2).random((1000, 50)) < 0.1
    estimates = [share_estimate(row.astype(float)) for row in hits]
    assert np.mean([e.low <= 0.1 <= e.high for e in estimates]) >= 0.95


def test_mean_is_infinite_with_one_failure() -> None:
    assert mean_estimate(np.array([1.0, math.inf]), "s").value == math.inf
    assert mean_estimate(np.array([1.0]), "s").high == math.inf
