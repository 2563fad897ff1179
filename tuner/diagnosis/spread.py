"""Quantiles as far as a histogram's buckets tell them, and how far its tail lies from its median.

One place, so that a quantile outside the buckets is read alike everywhere: below the first bucket
the mean says more than that bucket's bound, and beyond the last one only "at least" is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storage.sources.base import Reading
from tuner.diagnosis.context import Case
from tuner.diagnosis.registry import quantile_name

BEYOND = "judge it with `tuner bench`: the histogram ends there"


@dataclass(frozen=True, slots=True)
class Spread:
    """p99 / p50 of the histogram `name`; 0 where one of them has no value, or p50 is 0.

    exact: both lie inside the buckets. open: it may be any larger, as one lies beyond the last.
    """

    name: str
    value: float
    exact: bool
    open: bool

    def unknown(self, least: float) -> bool:
        """Whether it may or may not reach `least`."""
        return self.open and self.value < least


def value_of(reading: Reading, mean: Reading) -> float:
    """A quantile by its reading and its histogram's mean; NaN where it has no value."""
    value = reading.value if reading.value is not None else math.nan
    if reading.bound == "≤" and mean.value is not None:
        return min(value, mean.value)
    return value


def spread(case: Case, name: str) -> Spread:
    p50, p99 = (case.s[quantile_name(name, q)] for q in (0.5, 0.99))
    mean = case.s[name]
    if not p99.ok or not value_of(p50, mean) > 0:
        return Spread(name, 0.0, exact=False, open=False)
    ratio = value_of(p99, mean) / value_of(p50, mean)
    return Spread(name, ratio, not (p50.bound or p99.bound), p99.bound == "≥")
