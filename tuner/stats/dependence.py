"""How much dependent samples are worth: autocorrelated ones, and gaps of one request.

Everything is one question: the variance of a sum of residuals in order of scheduling. It follows
from the integrated autocorrelation time (initial positive sequence, Geyer 1992) within each run;
what runs differ by is tuner.stats.runs. Invariant: dependence only ever widens an interval, and the
fewer independent pieces a variance was learned from, the wider (Korn & Graubard 1998).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

from tuner.stats.estimate import CONFIDENCE

Floats = npt.NDArray[np.float64]

SHARE_OF_PIECES = 0.25
"""Degrees of freedom per independent piece n/τ: τ is learned from the same series. Found by the
simulations of tests/tuner/stats: with more of them, AR(1) and queues are covered too rarely."""


@dataclass(frozen=True, slots=True)
class Worth:
    """n samples are worth effective_n independent ones, known with df degrees of freedom."""

    n: int
    effective_n: float
    df: float

    def counted(self, confidence: float = CONFIDENCE, *, sides: int = 2) -> int:
        """How many samples a binomial interval may count on: effective_n less what is not known of
        it (degrees-of-freedom adjustment of Korn & Graubard 1998), at least 1."""
        tail = (1 - confidence) / sides
        known = (float(norm.isf(tail)) / float(t.isf(tail, self.df))) ** 2
        return max(1, min(self.n, math.floor(self.effective_n * known + 1e-9)))


def integrated_time(series: Floats, runs: Sequence[int] | None = None) -> float:
    """τ ≥ 1: n samples in this order hold n/τ independent ones.

    1 + 2 Σ autocorrelations, summed in pairs as long as a pair is positive (Geyer 1992), and
    corrected for the mean having been taken from the same series. Its own error is some √(τ/n) of
    it and the sum is more often cut too early than too late, so one such error is added. runs:
    lengths of consecutive runs, each centred on its own mean.
    """
    n = len(series)
    parts = np.split(series, np.cumsum(runs)[:-1]) if runs is not None else [series]
    longest = max((len(part) for part in parts), default=0)
    if longest < 4:
        return 1.0
    covariance = np.zeros(longest)
    for part in parts:
        if len(part):
            covariance[: len(part)] += _lagged_products(part)
    if covariance[0] <= 1e-12 * float(np.sum(series**2)):
        return 1.0
    pairs = longest // 4
    sums = covariance[0 : 2 * pairs : 2] + covariance[1 : 2 * pairs : 2]
    ends = np.nonzero(sums <= 0)[0]
    kept = max(1, int(ends[0]) if len(ends) else pairs)
    time = 2 * float(sums[:kept].sum()) / float(covariance[0]) - 1
    seen = 1 - (2 * kept - 1) * len(parts) / n
    time = max(1.0, time / max(0.3, seen))
    return min(n, time * (1 + math.sqrt((time - 1) / n)))


def variance_of_sum(residuals: Floats, runs: Sequence[int] | None = None) -> tuple[float, float]:
    """(variance of Σ residuals, its degrees of freedom); residuals sum to about 0.

    runs: how many consecutive residuals belong to each run; each is centred on its own mean.
    """
    n = len(residuals)
    lengths = [length for length in (runs or (n,)) if length]
    parts = np.split(residuals, np.cumsum(lengths)[:-1])
    time = integrated_time(residuals, lengths)
    centred = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    within = centred * n / max(1, n - len(parts)) * time
    return within, max(1.0, min(n - 1.0, SHARE_OF_PIECES * n / time))


def worth_of_shares(
    hits: Floats, sizes: Floats | None = None, runs: Sequence[int] | None = None
) -> Worth:
    """What the samples behind a share are worth.

    hits[i] of the sizes[i] samples of request i (in order of scheduling; 1 each by default) are
    hits. The design effect is the variance of the share over the binomial one (Kish 1965).
    """
    weights = np.ones(len(hits)) if sizes is None else sizes
    n = float(weights.sum())
    share = float(hits.sum()) / n if n else 0.0
    rarer = min(share, 1 - share)
    if rarer <= 0:
        return Worth(int(n), n, math.inf)
    variance, df = variance_of_sum(hits - share * weights, runs)
    effect = max(1.0, variance / (n * share * (1 - share)))
    # A variance of rare hits is known no better than the number of their independent clumps says.
    df = max(1.0, min(df, 2 * n * rarer / effect))
    return Worth(int(n), n / effect, df)


def _lagged_products(part: Floats) -> Floats:
    """Σ d_i d_{i+k} for every lag k, d centred on its mean."""
    centred = part - part.mean()
    padded = 1 << (2 * len(part) - 1).bit_length()
    spectrum = np.fft.rfft(centred, padded)
    products: Floats = np.fft.irfft(spectrum * np.conj(spectrum), padded)[: len(part)]
    return products
