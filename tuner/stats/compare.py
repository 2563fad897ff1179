"""Is B better than A? Ratios with intervals: improved, no difference, worse, or inconclusive.

Runs are compared in pairs (same arrivals and lengths on both sides), so that what both share
cancels. Within a run the interval of the log ratio is a bootstrap over blocks of consecutive
requests or slices of time, so that autocorrelation is respected (Künsch 1989), with percentiles
widened for few blocks (Hesterberg 2015). Several pairs of runs add the spread between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

from tuner.stats.dependence import integrated_time
from tuner.stats.estimate import CONFIDENCE as CONFIDENCE
from tuner.stats.estimate import Estimate
from tuner.stats.runs import DEFAULT_SD, RunNoise, run_noise

Floats = npt.NDArray[np.float64]

RESAMPLES = 2_000
BLOCK_PER_TIME = 3.0
"""Blocks are this many autocorrelation times long, so that little correlation is cut."""

FEWEST_BLOCKS, MOST_BLOCKS = 6, 200

SMALLEST_GAIN = 0.02
"""Differences inside ±2 % are called no difference when the interval says so."""

SMALLEST_SHARE = 0.01
"""The same for shares: one percentage point."""

Outcome = Literal["improved", "worse", "no_difference", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """ratio = B / A with its interval (95 % unless confidence says more) from n pairs; above 1 is
    more.

    For shares (error rate, attainment) the outcome is that of difference = (B − A, its low and
    high end), because a ratio to no error at all says nothing. a and b: the figures of both sides
    where the caller has them.
    """

    ratio: float
    low: float
    high: float
    n: int
    outcome: Outcome
    method: str
    difference: tuple[float, float, float] | None = None
    a: Estimate | None = None
    b: Estimate | None = None
    confidence: float = CONFIDENCE


@dataclass(frozen=True, slots=True)
class LogRatio:
    """log(B / A) of one pair of runs and the ends of its interval; ±∞ where a side is."""

    value: float
    low: float
    high: float
    n: int


class Statistic(Protocol):
    """A figure that follows from sums over blocks."""

    @property
    def blocks(self) -> int: ...

    def at(self, weights: Floats) -> Floats:
        """The figure for each row of weights (resamples × blocks: how often a block is taken)."""
        ...


@dataclass(frozen=True, slots=True)
class RatioOfSums:
    """Σ amounts / Σ sizes: a mean (amounts of latency, counts) or a rate (events, seconds)."""

    amounts: Floats
    sizes: Floats

    @property
    def blocks(self) -> int:
        return len(self.amounts)

    def at(self, weights: Floats) -> Floats:
        figures: Floats = (weights @ self.amounts) / (weights @ self.sizes)
        return figures


@dataclass(frozen=True, slots=True)
class BlockQuantile:
    """Inverted empirical CDF on a grid of observed values.

    below[i, j]: how many values of block i are at most grid[j]; sizes[i]: how many it has.
    """

    q: float
    grid: Floats
    below: Floats
    sizes: Floats

    @property
    def blocks(self) -> int:
        return len(self.sizes)

    def at(self, weights: Floats) -> Floats:
        wanted = self.q * (weights @ self.sizes) - 1e-6
        reached = (weights @ self.below) >= wanted[:, None]
        reached[:, -1] = True  # the grid ends with the largest value
        figures: Floats = self.grid[reached.argmax(axis=1)]
        return figures


GRID = 512


def block_quantile(
    values: Floats, q: float, edges: Sequence[int], sizes: Floats | None = None
) -> BlockQuantile:
    """edges: where blocks of requests end (exclusive, ascending; the last is all of them)."""
    ordered = np.sort(values)
    n = len(ordered)
    if n <= GRID:
        grid = ordered
    else:
        reach = max(0.05, 12 * math.sqrt(q * (1 - q) / n))
        ranks = np.linspace(max(0.0, q - reach), min(1.0, q + reach), GRID) * (n - 1)
        grid = np.concatenate([ordered[np.ceil(ranks).astype(int)], ordered[-1:]])
    ends = np.asarray(edges) if sizes is None else np.cumsum(sizes).astype(int)[np.array(edges) - 1]
    parts = np.split(values, ends[:-1])
    below = np.array([np.searchsorted(np.sort(part), grid, side="right") for part in parts])
    return BlockQuantile(q, grid, below.astype(float), np.array([float(len(p)) for p in parts]))


def block_count(*series: Floats) -> int:
    """Into how many blocks series in order of scheduling may be cut, by the most correlated."""
    n = min(len(one) for one in series)
    length = BLOCK_PER_TIME * max(integrated_time(one) for one in series)
    most = min(MOST_BLOCKS, n)
    return max(min(FEWEST_BLOCKS, n), min(most, int(n / length))) if n else 0


def log_ratio(a: Statistic, b: Statistic, n: int, *, paired: bool, seed: int = 0) -> LogRatio:
    """Bootstrap of log(b / a) over blocks; paired: block i of both sides is the same load."""
    rng = np.random.default_rng(seed)
    weights_a = _weights(rng, a.blocks)
    weights_b = weights_a if paired else _weights(rng, b.blocks)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.log(b.at(weights_b)) - np.log(a.at(weights_a))
        whole_a, whole_b = (side.at(np.ones((1, side.blocks)))[0] for side in (a, b))
        value = float(np.log(whole_b) - np.log(whole_a))
    blocks = min(a.blocks, b.blocks)
    if math.isnan(value) or blocks < 2:
        return LogRatio(value, -math.inf, math.inf, n)
    drawn = np.sort(np.where(np.isnan(drawn), 0.0, drawn))  # both infinite: no difference seen
    wide = math.sqrt(blocks / (blocks - 1)) * float(t.isf((1 - CONFIDENCE) / 2, blocks - 1))
    tail = max(0.5 / RESAMPLES, float(norm.sf(wide)))
    low, high = _at_share(drawn, tail), _at_share(drawn, 1 - tail)
    return LogRatio(value, min(low, value), max(high, value), n)


def combined(pairs: Sequence[LogRatio], *, higher_is_better: bool, method: str) -> Comparison:
    """The comparison over all pairs of runs; their spread is in the interval unless chance
    explains it."""
    n, runs = sum(pair.n for pair in pairs), len(pairs)
    values = np.array([pair.value for pair in pairs])
    if np.isnan(values).any():
        return inconclusive(n, "both sides are infinite or nothing was measured")
    lows, highs = [pair.low for pair in pairs], [pair.high for pair in pairs]
    if runs == 1 or not np.isfinite([*values, *lows, *highs]).all():
        middle = float(values.mean()) if np.isfinite(values).all() else float(values[0])
        return judged(middle, min(lows), max(highs), n, higher_is_better, method)
    method += f", spread of {runs} pairs of runs"
    mean = float(values.mean())
    within = float(np.sqrt(np.sum([((p.high - p.low) / 2) ** 2 for p in pairs]))) / runs
    each = [
        Estimate(_exp(p.value), _exp(p.low), _exp(p.high), p.n, "", method) for p in pairs
    ]  # fmt: skip
    noise = run_noise([each], default_sd=math.sqrt(2) * DEFAULT_SD)
    half = math.hypot(within, noise.reach(each))
    return judged(mean, mean - half, mean + half, n, higher_is_better, method)


def compare_rates(
    a: Sequence[float],
    b: Sequence[float],
    *,
    higher_is_better: bool = True,
    confidence: float = CONFIDENCE,
    noise: RunNoise | None = None,
) -> Comparison:
    """Paired runs: one figure per run and side, in the same order. confidence: of the interval
    that decides; who compares several times or with several candidates asks for more.

    noise: of single runs, from more of them than these pairs, sampling left in (run_noise); without
    it the pairs' own spread counts, and one pair says nothing.
    """
    if len(a) != len(b) or not a:
        raise ValueError("paired comparison needs as many A as B, at least one")
    pairs = [
        (x, y) for x, y in zip(a, b, strict=True)
        if x > 0 and y > 0 and math.isfinite(x) and math.isfinite(y)
    ]  # fmt: skip
    if len(pairs) < len(a):
        return inconclusive(len(a), "a run has no finite figure")
    logs = np.array([math.log(y / x) for x, y in pairs])
    mean, n = float(logs.mean()), len(logs)
    method = "Student, log ratio"
    if noise is not None:
        ratios = [Estimate(v, v, v, 1, "", method) for v in np.exp(logs)]
        half = replace(noise, sd_log=math.sqrt(2) * noise.sd_log).reach(ratios, confidence)
        method += ", noise of all repeated runs"
    elif n < 2:
        return inconclusive(n, "one pair has no interval", ratio=math.exp(mean))
    else:
        half = float(t.isf((1 - confidence) / 2, n - 1) * logs.std(ddof=1) / math.sqrt(n))
    found = judged(mean, mean - half, mean + half, n, higher_is_better, method)
    return replace(found, confidence=confidence)


def compare_shares(a: Estimate, b: Estimate, *, higher_is_better: bool) -> Comparison:
    """Difference of two shares from their intervals (square-and-add, Newcombe 1998); the ratio's
    ends are those of the intervals, which is wider than needed."""
    n = min(a.n, b.n)
    if not a.measured or not b.measured:
        return inconclusive(n, "a side has no request")
    change = b.value - a.value
    low = change - math.hypot(b.value - b.low, a.high - a.value)
    high = change + math.hypot(b.high - b.value, a.value - a.low)
    outcome: Outcome = "inconclusive"
    if low > 0 or high < 0:
        outcome = "improved" if (low > 0) == higher_is_better else "worse"
    elif low > -SMALLEST_SHARE and high < SMALLEST_SHARE:
        outcome = "no_difference"
    ratio = b.value / a.value if a.value else math.nan
    return Comparison(
        ratio, b.low / a.high, b.high / a.low if a.low else math.inf, n, outcome,
        "difference of shares, square-and-add interval", (change, low, high),
    )  # fmt: skip


def judged(
    mean: float, low: float, high: float, n: int, higher_is_better: bool, method: str
) -> Comparison:
    """The outcome of a log ratio's interval."""
    margin = math.log1p(SMALLEST_GAIN)
    outcome: Outcome = "inconclusive"
    if low > 0:
        outcome = "improved" if higher_is_better else "worse"
    elif high < 0:
        outcome = "worse" if higher_is_better else "improved"
    elif low > -margin and high < margin:
        outcome = "no_difference"
    return Comparison(_exp(mean), _exp(low), _exp(high), n, outcome, method)


def inconclusive(n: int, why: str, ratio: float = math.nan) -> Comparison:
    return Comparison(ratio, 0.0, math.inf, n, "inconclusive", why)


def _weights(rng: np.random.Generator, blocks: int) -> Floats:
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=RESAMPLES)
    return drawn.astype(float)


def _at_share(ordered: Floats, share: float) -> float:
    return float(ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))])


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
