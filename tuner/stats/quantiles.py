"""Quantiles without assumptions: inverted empirical CDF and binomial intervals.

The estimate is an observed value (Hyndman & Fan 1996, type 1), never an interpolation. The interval
takes order statistics whose ranks cover the quantile with 95 % probability whatever the
distribution (e.g. Conover, Practical Nonparametric Statistics, 3.2), for as many samples as the
dependent ones are worth. Values are given in order of scheduling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from tuner.stats.dependence import Worth, worth_of_shares
from tuner.stats.estimate import CONFIDENCE, Estimate

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
MAX_SAMPLES_NEEDED = 100_000

FEWEST_BEYOND = 10
"""Dependence is learned at a level that at least this many samples exceed (and stay below)."""

EQUAL = 1e-9
"""Values that differ by less than this share are equal: rounding is no pattern in time."""

TYPICAL_LEVEL = 0.95
"""Where nothing exceeds a bound, gaps are taken to depend on each other as at this quantile."""


def quantile(sorted_values: Floats, q: float) -> float:
    """Smallest observed x with F(x) ≥ q."""
    return float(sorted_values[max(0, math.ceil(q * len(sorted_values) - 1e-9) - 1)])


def quantile_estimate(
    values: Floats,
    q: float,
    unit: str,
    *,
    sizes: Floats | None = None,
    runs: Sequence[int] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The q-quantile of values, in order of scheduling, with its two-sided interval.

    sizes: how many values in a row belong to each request (1 each by default). runs: how many
    requests in a row belong to each run. Where too few samples exist, the side that cannot be
    bounded is infinite (or 0).
    """
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no samples")
    ordered = np.sort(values)
    worth = worth_at_quantile(values, q, sizes=sizes, runs=runs)
    m = worth.counted(confidence)
    tail = (1 - confidence) / 2
    low_rank = int(binom.ppf(tail, m, q))
    high_rank = int(binom.ppf(1 - tail, m, q)) + 1
    low = float(ordered[_scaled(low_rank, m, n)]) if low_rank >= 1 else 0.0
    high = float(ordered[_scaled(high_rank, m, n)]) if high_rank <= m else math.inf
    method = "inverted empirical CDF, binomial interval"
    if m < n:
        method += f", {m} effective samples"
    value = quantile(ordered, q)
    return Estimate(value, low, high, n, unit, method, effective_n=worth.effective_n)


def _scaled(rank: int, m: int, n: int) -> int:
    """0-based index among n values of the rank-th (1-based) of m."""
    return min(n - 1, max(0, math.ceil(rank * n / m) - 1))


def worth_at_quantile(
    values: Floats, q: float, *, sizes: Floats | None = None, runs: Sequence[int] | None = None
) -> Worth:
    """What values are worth for a share near q, by the exceedances of their own q-quantile."""
    n = len(values)
    edge = min(0.5, FEWEST_BEYOND / n)
    level = quantile(np.sort(values), min(1 - edge, max(edge, q)))
    above = values > level * (1 + EQUAL)
    return worth_of_shares(_per_request(above, sizes), sizes, runs)


def worth_of_exceedances(
    values: Floats,
    exceeding: Bools,
    q: float,
    *,
    sizes: Floats | None = None,
    runs: Sequence[int] | None = None,
) -> Worth:
    """What values are worth for the question whether their q-quantile is below a bound.

    The lesser of what they are worth at the q-quantile and at the bound itself: a bound that none
    exceeds says nothing of dependence, one that many exceed may show more of it.
    """
    at_quantile = worth_at_quantile(values, q, sizes=sizes, runs=runs)
    if min(exceeding.sum(), (~exceeding).sum()) < FEWEST_BEYOND:
        return at_quantile
    at_bound = worth_of_shares(_per_request(exceeding, sizes), sizes, runs)
    return min(at_quantile, at_bound, key=lambda worth: worth.counted(sides=1))


def _per_request(flags: Bools, sizes: Floats | None) -> Floats:
    """How many values of each request are flagged."""
    if sizes is None:
        return flags.astype(float)
    ends = np.cumsum(sizes).astype(int)
    total = np.concatenate([[0.0], np.cumsum(flags)])
    counted: Floats = np.diff(total[np.concatenate([[0], ends])])
    return counted


def exceedance_test(
    n: float, exceeding: float, q: float, confidence: float = CONFIDENCE
) -> Literal["below", "above", "open"]:
    """Is the q-quantile below the bound that `exceeding` of n samples exceed?

    One-sided binomial tests: "below" with p95 needs at least 59 samples, p99 at least 299.
    """
    if n <= 0:
        return "open"
    alpha = 1 - confidence
    if binom.cdf(exceeding, n, 1 - q) <= alpha:
        return "below"
    if exceeding > 0 and binom.sf(exceeding - 1, n, 1 - q) <= alpha:
        return "above"
    return "open"


def samples_needed(n: int, exceeding: int, q: float) -> int | None:
    """About how many samples would decide at the present share of exceedances; None: too many."""
    share = exceeding / n if n else 0.0
    total = max(n, 8)
    while total <= MAX_SAMPLES_NEEDED:
        total = math.ceil(total * 1.1) + 1
        if exceedance_test(total, round(share * total), q) != "open":
            return total - n
    return None


def cluster_effective_n(groups: list[Floats], threshold: float) -> float:
    """Effective number of samples that come in groups (gaps of one request belong together).

    By the share above threshold; where none or all are above it, gaps are not independent for
    that: then by the share above their own TYPICAL_LEVEL.
    """
    sizes = np.array([len(group) for group in groups], dtype=float)
    if len(groups) < 2 or not sizes.sum():
        return float(len(groups))
    values = np.concatenate(groups)
    exceeding = values > threshold
    worth = worth_of_exceedances(values, exceeding, TYPICAL_LEVEL, sizes=sizes)
    return worth.effective_n
