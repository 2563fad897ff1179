"""How often a confirmation claims a gain that is none: simulated, with every look it takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm, t

from tuner.search.levels import LOOKS, MAX_ROUNDS, looked_at, next_look, shared_confidence
from tuner.stats import compare_rates

Floats = npt.NDArray[np.float64]
STUDIES = 20_000
NOMINAL = 0.025
"""Chance of claiming a gain where none is: the upper tail of a 95 % interval."""


def low_ends(logs: Floats, confidence: float) -> Floats:
    """compare_rates's lower end for each row of log ratios."""
    n = logs.shape[-1]
    half = t.isf((1 - confidence) / 2, n - 1) * logs.std(axis=-1, ddof=1) / np.sqrt(n)
    ends: Floats = logs.mean(axis=-1) - half
    return ends


def test_the_simulation_computes_what_compare_rates_does() -> None:
    rng = np.random.default_rng(0)
    logs = rng.normal(0, 0.03, (5, 4))
    for row, low in zip(logs, low_ends(logs, 0.99), strict=True):
        found = compare_rates([1.0] * 4, list(np.exp(row)), confidence=0.99)
        assert np.log(found.low) == pytest.approx(low)
        assert found.confidence == 0.99


@pytest.mark.parametrize("candidates", [1, 2, 3])
@pytest.mark.parametrize("noisier", [1.0, 4.0])
def test_gains_are_claimed_from_noise_no_more_often_than_nominal(
    candidates: int, noisier: float
) -> None:
    """All candidates equal the baseline, are measured against the same baseline runs, and each is
    looked at after each look's rounds; noisier: how much more one of them varies."""
    rng = np.random.default_rng(candidates)
    baseline = rng.normal(0, 0.03, (STUDIES, 1, MAX_ROUNDS))
    spread = np.where(np.arange(candidates) == 0, noisier, 1.0)[:, None] * 0.03
    ratios = rng.normal(0, 1, (STUDIES, candidates, MAX_ROUNDS)) * spread - baseline
    claimed = np.zeros(STUDIES, dtype=bool)
    naive = np.zeros(STUDIES, dtype=bool)
    for look in LOOKS:
        claimed |= (low_ends(ratios[..., :look], shared_confidence(candidates)) > 0).any(axis=1)
        naive |= (low_ends(ratios[..., :look], 0.95) > 0).any(axis=1)
    assert claimed.mean() <= NOMINAL
    assert naive.mean() > 1.7 * NOMINAL  # what an unshared level would claim


def test_the_winners_gain_is_covered_by_its_interval() -> None:
    """The best of three candidates of which one is truly 5 % better: its interval holds the true
    gain of the one that was chosen, although it was chosen for looking good."""
    rng = np.random.default_rng(9)
    true = np.array([0.0, 0.02, 0.05])
    baseline = rng.normal(0, 0.03, (STUDIES, 1, MAX_ROUNDS))
    logs = true[:, None] + rng.normal(0, 0.03, (STUDIES, 3, MAX_ROUNDS)) - baseline
    rows, winners = np.arange(STUDIES), logs.mean(axis=2).argmax(axis=1)
    chosen = logs[rows, winners]
    assert (low_ends(chosen, shared_confidence(3)) <= true[winners]).mean() >= 0.975


@pytest.mark.parametrize("candidates", [1, 3])
def test_slos_are_called_met_in_vain_no_more_often_than_nominal(candidates: int) -> None:
    """Every candidate misses its p95 by a hair (6 % of the requests are over the bound instead of
    5 %) and is looked at after each look's rounds: one-sided, 5 % false passes are nominal."""
    rng = np.random.default_rng(4)
    requests = 150
    over = rng.binomial(requests, 0.0501, (STUDIES, candidates, MAX_ROUNDS)).cumsum(axis=2)
    passed = np.zeros(STUDIES, dtype=bool)
    naive = np.zeros(STUDIES, dtype=bool)
    for look in LOOKS:
        n = requests * look
        for level, verdicts in ((shared_confidence(candidates), passed), (0.95, naive)):
            # The largest count that the one-sided test lets pass.
            most = np.arange(n + 1)[_binomial_cdf(n, 0.05) <= 1 - level]
            limit = most[-1] if len(most) else -1
            verdicts |= (over[..., look - 1] <= limit).any(axis=1)
    assert passed.mean() <= 0.05
    assert naive.mean() > 0.08


def _binomial_cdf(n: int, p: float) -> Floats:
    from scipy.stats import binom

    found: Floats = binom.cdf(np.arange(n + 1), n, p)
    return found


def test_looks_are_few_and_fixed() -> None:
    assert [len(looked_at(range(n))) for n in range(10)] == [0, 0, 2, 3, 3, 5, 5, 5, 8, 8]
    assert [next_look(n) for n in (0, 2, 3, 5, 7, 8)] == [2, 3, 5, 8, 8, None]


def test_the_level_is_divided_by_all_that_share_it() -> None:
    assert 1 - shared_confidence(3) == pytest.approx(0.05 / (3 * len(LOOKS)))
    assert 1 - shared_confidence(3, 2) == pytest.approx(0.05 / (3 * len(LOOKS) * 2))
    assert norm.isf(1 - shared_confidence(0)) == norm.isf(1 - shared_confidence(1))
