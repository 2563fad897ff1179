"""Means, shares and rates with intervals that hold for samples which depend on each other.

A mean's variance takes in the autocorrelation of the series (tuner.stats.dependence) and, of
several runs, their noise (tuner.stats.runs). Rates come from events in time: the window is cut into
equal batches, and the batches are such a series (batch means, Law & Kelton, whose correlation is
counted in, not assumed away).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, norm, t

from tuner.stats.dependence import variance_of_sum, worth_of_shares
from tuner.stats.estimate import CONFIDENCE, Estimate
from tuner.stats.runs import RunNoise, run_noise, run_parts, widened
from tuner.units import count_text

Floats = npt.NDArray[np.float64]
BATCHES = 120

CLUMPS_SKEW = 1.5
"""How much more skewed the mean of strongly dependent samples is than that of as many independent
ones as they are worth: clumps differ in length (third moments of geometric lengths)."""


def mean_estimate(
    values: Floats,
    unit: str,
    *,
    sizes: Floats | None = None,
    runs: Sequence[int] | None = None,
    noise: RunNoise | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Arithmetic mean of values in order of scheduling; infinite as soon as one value is.

    sizes, runs and noise as for quantile_estimate. The interval is Student's, bent by the skewness
    of the values (Johnson 1978, in the invertible form of Hall 1992), with degrees of freedom for
    heavy tails.
    """
    found = _mean_within(values, unit, sizes, runs, confidence)
    parts = run_parts(values, sizes, runs)
    if not found.measured or (noise is None and len(parts) < 2):
        return found
    each = [_mean_within(part, unit, own, None, CONFIDENCE) for part, own in parts]
    shared = run_noise([each]) if noise is None else noise
    return widened(found, shared.reach(each, confidence))


def _mean_within(
    values: Floats,
    unit: str,
    sizes: Floats | None,
    runs: Sequence[int] | None,
    confidence: float,
) -> Estimate:
    """The mean with the interval that the runs' own samples give."""
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no samples")
    value = float(np.mean(values))
    requests = n if sizes is None else int((sizes > 0).sum())
    if requests < 2 or not math.isfinite(value):
        return Estimate(value, 0.0 if requests < 2 else value, math.inf, n, unit, "mean")
    variance, df = variance_of_sum(_residuals(values, value, sizes), runs)
    spread = float(values.var(ddof=1))
    if variance <= 0 or spread <= 0:
        return Estimate(value, value, value, n, unit, "mean of equal values", effective_n=n)
    effective = min(n, n * spread / (variance / n))
    standard = (values - value) / math.sqrt(spread)
    skewness, kurtosis = float(np.mean(standard**3)), float(np.mean(standard**4))
    df = max(1.0, df * min(1.0, 2 / max(1.0, kurtosis - 1)))
    skewness *= CLUMPS_SKEW - (CLUMPS_SKEW - 1) * min(1.0, effective / requests)
    low, high = _bent_student(skewness / (6 * math.sqrt(effective)), df, confidence)
    error = math.sqrt(variance) / n
    method = "mean, skewness-adjusted Student interval"
    if effective < n:
        method += f", {count_text(round(effective), 'effective sample')}"
    return Estimate(
        value, max(0.0, value - high * error), value - low * error, n, unit, method,
        effective_n=effective,
    )  # fmt: skip


def rate_estimate(
    times_s: Floats,
    weights: Floats,
    start_s: float,
    end_s: float,
    unit: str,
    n: int,
    *,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Σ weights of events inside [start, end) per second, with a batch-means interval."""
    span_s = end_s - start_s
    if span_s <= 0:
        return Estimate.missing(unit, "the measured window is empty")
    inside = (times_s >= start_s) & (times_s < end_s)
    total = float(weights[inside].sum())
    edges = np.linspace(start_s, end_s, BATCHES + 1)
    batches, _ = np.histogram(times_s[inside], bins=edges, weights=weights[inside])
    variance, df = variance_of_sum(batches - total / BATCHES)
    half = float(t.isf((1 - confidence) / 2, df)) * math.sqrt(variance) / span_s
    value = total / span_s
    method = f"batch means of {BATCHES}, autocorrelation counted in"
    return Estimate(value, max(0.0, value - half), value + half, n, unit, method)


def share_estimate(
    hits: Floats,
    *,
    runs: Sequence[int] | None = None,
    noise: RunNoise | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Share of hits (0 or 1 each, in order of scheduling): the exact binomial interval (Clopper &
    Pearson 1934) for as many samples as they are worth. runs and noise (of log odds) as for
    quantile_estimate."""
    n = len(hits)
    if n == 0:
        return Estimate.missing("share", "no requests")
    worth = worth_of_shares(hits, runs=runs)
    m = worth.counted(confidence)
    value = float(hits.mean())
    parts = run_parts(hits, None, runs)
    if noise is not None or len(parts) > 1:
        each = [share_estimate(part) for part, _ in parts] if len(parts) > 1 else [
            Estimate(value, 0.0, 1.0, n, "share", "", effective_n=worth.effective_n)
        ]  # fmt: skip
        reach = (run_noise([each]) if noise is None else noise).reach(each, confidence)
        error = value * (1 - value) * reach / float(norm.isf((1 - confidence) / 2))
        m = max(1, math.floor(1 / (1 / m + error**2 / max(1e-12, value * (1 - value)))))
    low, high = clopper_pearson(value * m, m, confidence)
    found = Estimate(
        value, low, high, n, "share", "Clopper-Pearson interval",
        effective_n=worth.effective_n, counted_n=m,
    )  # fmt: skip
    return replace(found, method=found.method + found.worth_text)


def clopper_pearson(hits: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact interval of a share; hits and n need not be whole."""
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    return low, high


def mean_of_runs(
    estimates: Sequence[Estimate],
    confidence: float = CONFIDENCE,
    *,
    noise: RunNoise | None = None,
) -> Estimate:
    """One figure of several runs of equal length: their mean.

    estimates: with intervals of this confidence. The interval holds their errors and the noise
    between runs, which without one given is learned from these runs and the default. Missing where
    one run's is.
    """
    first, runs = estimates[0], len(estimates)
    if missing := [estimate for estimate in estimates if not estimate.measured]:
        return missing[0]
    if runs == 1 and noise is None:
        return first
    values = np.array([estimate.value for estimate in estimates])
    mean, total = float(values.mean()), sum(estimate.n for estimate in estimates)
    method = f"mean of {count_text(runs, 'run')}, noise between runs counted in"
    if not np.isfinite(values).all():
        return Estimate(mean, 0.0, math.inf, total, first.unit, method)
    below = float(np.sqrt(np.sum([(e.value - e.low) ** 2 for e in estimates]))) / runs
    above = float(np.sqrt(np.sum([(e.high - e.value) ** 2 for e in estimates]))) / runs
    found = Estimate(mean, max(0.0, mean - below), mean + above, total, first.unit, method)
    shared = run_noise([estimates]) if noise is None else noise
    return widened(found, shared.reach(estimates, confidence))


def _residuals(values: Floats, mean: float, sizes: Floats | None) -> Floats:
    """Σ (value − mean) of each request."""
    if sizes is None:
        return values - mean
    total = np.concatenate([[0.0], np.cumsum(values - mean)])
    residuals: Floats = np.diff(total[np.concatenate([[0], np.cumsum(sizes).astype(int)])])
    return residuals


def _bent_student(skew: float, df: float, confidence: float) -> tuple[float, float]:
    """The two quantiles of a Student statistic of skewed samples; skew = skewness / (6 √n)."""
    quantile = float(t.isf((1 - confidence) / 2, df))
    if abs(skew) < 1e-6:
        return -quantile, quantile

    def bend(x: float) -> float:
        return (math.cbrt(1 + 6 * skew * (x - skew)) - 1) / (2 * skew)

    return bend(-quantile), bend(quantile)
