"""What a window of samples says, by Prometheus' own rules: pure functions over times and values.

`increase` follows promql's extrapolatedRate: resets add what was lost, and the increase is
extended to the window's edges, but no further than half a sampling interval where the series
begins or ends inside it, nor below zero. `quantile` follows histogram_quantile, save that a rank in
an outermost bucket is marked with a bound.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

EDGE_FACTOR = 1.1
"""A gap to the window's edge up to this many sampling intervals counts as sampled through."""

MAX_VALUE = 1e100
"""No counter of a server reaches this, and what is calculated of such figures stays finite."""


def finite(value: float | None) -> float | None:
    """None for what nobody has measured: NaN, and what is out of all bounds."""
    return value if value is not None and abs(value) <= MAX_VALUE else None


@dataclass(frozen=True, slots=True)
class Increase:
    value: float
    samples: int


def increase(
    times_s: Sequence[float], values: Sequence[float], start_s: float, end_s: float
) -> Increase | None:
    """The increase of a counter over [start_s, end_s]; None with fewer than two samples in
    it, or where they are no numbers that anybody has measured."""
    first = bisect_left(times_s, start_s)
    last = bisect_right(times_s, end_s) - 1
    if last <= first:
        return None
    grown = values[last] - values[first]
    previous = values[first]
    for index in range(first + 1, last + 1):
        value = values[index]
        if value < previous:
            grown += previous
        previous = value
    sampled_s = times_s[last] - times_s[first]
    if sampled_s <= 0 or finite(grown) is None:
        return None
    spacing_s = sampled_s / (last - first)
    before_s = times_s[first] - start_s
    after_s = end_s - times_s[last]
    if grown > 0 and values[first] >= 0:
        before_s = min(before_s, sampled_s * values[first] / grown)
    covered_s = sampled_s + _extension(before_s, spacing_s) + _extension(after_s, spacing_s)
    return Increase(grown * covered_s / sampled_s, last - first + 1)


def _extension(gap_s: float, spacing_s: float) -> float:
    return gap_s if gap_s < spacing_s * EDGE_FACTOR else spacing_s / 2


@dataclass(frozen=True, slots=True)
class Quantile:
    """bucket: the edges of the bucket that holds the rank; None without observations."""

    value: float
    observations: float
    bound: Literal["", "≥", "≤"] = ""
    bucket: tuple[float, float] | None = None


def quantile(q: float, counts: Mapping[float, float]) -> Quantile | None:
    """q of cumulative bucket counts by upper bound (+Inf among them); None without buckets.

    value is NaN when there were no observations.
    """
    bounds = sorted(counts)
    if len(bounds) < 2 or not math.isinf(bounds[-1]):
        return None
    cumulative: list[float] = []
    for bound in bounds:  # increases of racing series may fall back a little: keep them monotonic
        cumulative.append(max(counts[bound], cumulative[-1] if cumulative else 0.0))
    total = cumulative[-1]
    if not total > 0:
        return Quantile(math.nan, 0.0)
    rank = q * total
    index = bisect_left(cumulative, rank, hi=len(cumulative) - 1)
    if index == len(bounds) - 1:
        return Quantile(bounds[-2], total, "≥", (bounds[-2], math.inf))
    if index == 0:
        return Quantile(bounds[0], total, "≤", (-math.inf, bounds[0]))
    low, high = bounds[index - 1], bounds[index]
    below = cumulative[index - 1]
    share = (rank - below) / (cumulative[index] - below)
    return Quantile(low + (high - low) * share, total, bucket=(low, high))
