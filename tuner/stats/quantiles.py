"""Quantiles without assumptions: inverted empirical CDF and binomial intervals.

The estimate is an observed value (Hyndman & Fan 1996, type 1), never an interpolation. The interval
takes order statistics whose ranks cover the quantile with 95 % probability whatever the
distribution (e.g. Conover, Practical Nonparametric Statistics, 3.2).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from tuner.stats.estimate import Estimate

Floats = npt.NDArray[np.float64]
CONFIDENCE = 0.95
MAX_SAMPLES_NEEDED = 100_000


def quantile(sorted_values: Floats, q: float) -> float:
    """Smallest observed x with F(x) ≥ q."""
    return float(sorted_values[max(0, math.ceil(q * len(sorted_values) - 1e-9) - 1)])


def quantile_estimate(
    values: Floats, q: float, unit: str, *, effective_n: float | None = None
) -> Estimate:
    """The q-quantile of values with its two-sided 95 % interval.

    effective_n below len(values) widens the interval for samples that depend on each other. Where
    too few samples exist, the side that cannot be bounded is infinite (or 0).
    """
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no samples")
    ordered = np.sort(values)
    m = max(1, min(n, round(n if effective_n is None else effective_n)))
    tail = (1 - CONFIDENCE) / 2
    low_rank = int(binom.ppf(tail, m, q))
    high_rank = int(binom.ppf(1 - tail, m, q)) + 1
    low = float(ordered[_scaled(low_rank, m, n)]) if low_rank >= 1 else 0.0
    high = float(ordered[_scaled(high_rank, m, n)]) if high_rank <= m else math.inf
    method = "inverted empirical CDF, binomial interval"
    if m < n:
        method += f", {m} effective samples"
    return Estimate(quantile(ordered, q), low, high, n, unit, method)


def _scaled(rank: int, m: int, n: int) -> int:
    """0-based index among n values of the rank-th (1-based) of m."""
    return min(n - 1, max(0, math.ceil(rank * n / m) - 1))


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

    Design effect of the share above threshold (Kish 1965): variance between groups over the
    binomial variance.
    """
    sizes = np.array([len(group) for group in groups], dtype=float)
    n = float(sizes.sum())
    if len(groups) < 2 or n == 0:
        return float(len(groups))
    above = np.array([float((group > threshold).sum()) for group in groups])
    share = above.sum() / n
    if share in (0.0, 1.0):
        return n
    k = len(groups)
    variance = k / (k - 1) * float(((above - share * sizes) ** 2).sum()) / n**2
    design_effect = max(1.0, variance / (share * (1 - share) / n))
    return float(n / design_effect)
