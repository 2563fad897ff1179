"""Better, the same, or not known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.stats import Estimate, compare_rates


def test_clear_gain() -> None:
    found = compare_rates([100, 104, 98], [120, 126, 117])
    assert found.outcome == "improved"
    assert found.low > 1
    assert compare_rates([100, 104, 98], [120, 126, 117], higher_is_better=False).outcome == "worse"


def test_noise_is_inconclusive_and_equality_is_no_difference() -> None:
    assert compare_rates([100, 80, 120], [110, 100, 90]).outcome == "inconclusive"
    assert compare_rates([100, 200, 150], [100.1, 200.1, 149.9]).outcome == "no_difference"


def test_one_pair_or_a_failed_run_decides_nothing() -> None:
    assert compare_rates([100], [200]).outcome == "inconclusive"
    assert compare_rates([100, 100], [200, math.nan]).outcome == "inconclusive"
    with pytest.raises(ValueError, match="as many"):
        compare_rates([1], [1, 2])


def test_false_alarms_are_as_rare_as_said() -> None:
    rng = np.random.default_rng(9)
    alarms = 0
    for _ in range(400):
        a, b = rng.lognormal(0, 0.1, 4), rng.lognormal(0, 0.1, 4)
        alarms += compare_rates(list(a), list(b)).outcome in ("improved", "worse")
    assert alarms / 400 <= 0.08


def test_estimate_survives_json() -> None:
    estimate = Estimate(math.inf, 0.1, math.inf, 3, "s", "m", "r")
    assert Estimate.from_dict(estimate.as_dict()) == estimate
    assert not Estimate.from_dict(Estimate.missing("s", "why").as_dict()).measured
