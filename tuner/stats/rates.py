"""Means, shares and rates with intervals.

Rates come from events in time: equal batches of the window are nearly independent where single
events are not (batch means, Law & Kelton).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, t

from tuner.stats.estimate import Estimate

Floats = npt.NDArray[np.float64]
CONFIDENCE = 0.95
BATCHES = 10


def mean_estimate(values: Floats, unit: str) -> Estimate:
    """Arithmetic mean with a Student interval; infinite as soon as one value is."""
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no samples")
    value = float(np.mean(values))
    if n < 2 or not math.isfinite(value):
        return Estimate(value, 0.0 if n < 2 else value, math.inf, n, unit, "mean")
    half = _student_half(values)
    return Estimate(value, value - half, value + half, n, unit, "mean, Student interval")


def rate_estimate(
    times_s: Floats, weights: Floats, start_s: float, end_s: float, unit: str, n: int
) -> Estimate:
    """Σ weights of events inside [start, end) per second, with a batch-means interval."""
    span_s = end_s - start_s
    if span_s <= 0:
        return Estimate.missing(unit, "the measured window is empty")
    inside = (times_s >= start_s) & (times_s < end_s)
    total = float(weights[inside].sum())
    edges = np.linspace(start_s, end_s, BATCHES + 1)
    batches, _ = np.histogram(times_s[inside], bins=edges, weights=weights[inside])
    half = _student_half(batches / (span_s / BATCHES))
    value = total / span_s
    return Estimate(
        value, max(0.0, value - half), value + half, n, unit, f"batch means of {BATCHES}"
    )


def share_estimate(hits: int, n: int) -> Estimate:
    """hits / n with the exact binomial interval (Clopper & Pearson 1934)."""
    if n == 0:
        return Estimate.missing("share", "no requests")
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    return Estimate(hits / n, low, high, n, "share", "Clopper-Pearson interval")


def _student_half(values: Floats) -> float:
    n = len(values)
    spread = float(np.std(values, ddof=1))
    return float(t.ppf(1 - (1 - CONFIDENCE) / 2, n - 1)) * spread / math.sqrt(n)
