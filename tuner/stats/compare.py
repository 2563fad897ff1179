"""Is B better than A? Ratios with intervals: improved, no difference, or inconclusive.

Runs are compared in pairs (same arrivals and lengths on both sides), so that what both share
cancels; the interval of the log ratio is a bootstrap over pairs (Efron & Tibshirani 1993).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t

CONFIDENCE = 0.95
RESAMPLES = 4_000
SMALLEST_GAIN = 0.02
"""Differences inside ±2 % are called no difference when the interval says so."""

Outcome = Literal["improved", "worse", "no_difference", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """ratio = B / A with its 95 % interval from n pairs; above 1 is more."""

    ratio: float
    low: float
    high: float
    n: int
    outcome: Outcome
    method: str


def compare_rates(
    a: Sequence[float], b: Sequence[float], *, higher_is_better: bool = True
) -> Comparison:
    """Paired runs: one figure per run and side, in the same order."""
    if len(a) != len(b) or not a:
        raise ValueError("paired comparison needs as many A as B, at least one")
    pairs = [
        (x, y) for x, y in zip(a, b, strict=True)
        if x > 0 and y > 0 and math.isfinite(x) and math.isfinite(y)
    ]  # fmt: skip
    if len(pairs) < len(a):
        return _inconclusive(len(a), "a run has no finite figure")
    logs = np.array([math.log(y / x) for x, y in pairs])
    mean, n = float(logs.mean()), len(logs)
    if n < 2:
        return _inconclusive(n, "one pair has no interval", ratio=math.exp(mean))
    half = float(t.ppf(1 - (1 - CONFIDENCE) / 2, n - 1) * logs.std(ddof=1) / math.sqrt(n))
    return _judged(mean, mean - half, mean + half, n, higher_is_better, "Student, log ratio")


def compare_paired(
    a: Sequence[float], b: Sequence[float], *, higher_is_better: bool = False, seed: int = 0
) -> Comparison:
    """Paired requests: latencies of the same requests on both sides, seconds."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(x) != len(y):
        raise ValueError("paired comparison needs as many A as B")
    usable = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    if usable.sum() < 10 or usable.sum() < 0.9 * len(x):
        return _inconclusive(int(usable.sum()), "too few pairs succeeded on both sides")
    logs = np.log(y[usable] / x[usable])
    rng = np.random.default_rng(seed)
    n = len(logs)
    means = logs[rng.integers(0, n, size=(RESAMPLES, n))].mean(axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return _judged(
        float(logs.mean()), float(low), float(high), n, higher_is_better, "paired bootstrap"
    )


def _judged(
    mean: float, low: float, high: float, n: int, higher_is_better: bool, method: str
) -> Comparison:
    margin = math.log1p(SMALLEST_GAIN)
    outcome: Outcome = "inconclusive"
    if low > 0:
        outcome = "improved" if higher_is_better else "worse"
    elif high < 0:
        outcome = "worse" if higher_is_better else "improved"
    elif low > -margin and high < margin:
        outcome = "no_difference"
    return Comparison(math.exp(mean), math.exp(low), math.exp(high), n, outcome, method)


def _inconclusive(n: int, why: str, ratio: float = math.nan) -> Comparison:
    return Comparison(ratio, 0.0, math.inf, n, "inconclusive", why)
