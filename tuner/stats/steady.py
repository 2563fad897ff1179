"""When a run had settled: where its warm-up ends, from its own series.

MSER-5 (White 1997): of all beginnings that could be cut, the one whose cut leaves the mean of the
rest (in batches of five) with the least standard error; a cut beyond the middle means that no
steady state was seen. Two guards keep noise and later events in: what is cut must differ from the
rest clearly, and must do so from the start. A stall in the middle of a run is no warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.stats.dependence import variance_of_sum

Floats = npt.NDArray[np.float64]

BATCH = 5
FEWEST_BATCHES = 20
"""Shorter series say too little: below 100 requests the warm-up is what was asked for."""
CLEARLY = 3.0
"""Standard errors by which a beginning must differ from the rest to be called a warm-up."""

FROM_THE_START = 0.25
"""Share of the beginning that must already differ by half as much."""


@dataclass(frozen=True, slots=True)
class Series:
    """values at at_s (seconds, ascending); evenly in time or one per request."""

    at_s: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class Steady:
    """The window's start, whether a steady state was seen (None: too little to tell), and why."""

    start_s: float
    reached: bool | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {"start_s": self.start_s, "reached": self.reached, "why": self.why}


def find_steady(series: Mapping[str, Series], least_s: float, most_s: float = math.inf) -> Steady:
    """The later of least_s and of where every named series has settled.

    Where one has not settled by most_s, or not at all, the window starts at least_s and says so:
    nothing is trimmed that cannot be told from the rest.
    """
    settled: dict[str, float] = {}
    for name, one in series.items():
        if len(one.values) < BATCH * FEWEST_BATCHES:
            continue
        found = settles_at(one)
        if found is None:
            return Steady(least_s, False, f"{name} had not settled by the middle of the run")
        if found > most_s:
            return Steady(
                least_s, False, f"{name} settled only after {found:.1f} s, later than allowed"
            )
        settled[name] = found
    if not settled:
        return Steady(least_s, None, "too few requests to see whether it had settled")
    last = max(settled, key=lambda name: settled[name])
    if settled[last] > least_s:
        return Steady(settled[last], True, f"{last} had settled by then (MSER-5)")
    return Steady(least_s, True, f"{', '.join(settled)} had settled before (MSER-5)")


def settles_at(series: Series) -> float | None:
    """Seconds from which on a series is steady; None when its halves still differ."""
    count = len(series.values) // BATCH
    batches = series.values[: count * BATCH].reshape(count, BATCH).mean(axis=1)
    cut = _least_error(batches)
    if 2 * cut <= count:
        return float(series.at_s[cut * BATCH]) if _is_warm_up(batches, cut) else 0.0
    half = count // 2
    return None if _differ(batches[:half], batches[half:]) else 0.0


def _least_error(batches: Floats) -> int:
    """The MSER rule: how many batches to cut."""
    left = np.arange(len(batches), 0, -1)
    sums = np.cumsum(batches[::-1])[::-1]
    squares = np.cumsum(batches[::-1] ** 2)[::-1]
    errors = (squares - sums**2 / left) / left**2
    return int(np.argmin(errors[: max(1, len(batches) - BATCH + 1)]))


def _is_warm_up(batches: Floats, cut: int) -> bool:
    if cut == 0:
        return False
    first, rest = batches[:cut], batches[cut:]
    change = float(first.mean() - rest.mean())
    begins = first[: max(1, math.ceil(FROM_THE_START * cut))]
    same_way = float(begins.mean() - rest.mean()) * math.copysign(1.0, change)
    spread = float(rest.std(ddof=1))
    error = math.hypot(spread / math.sqrt(cut), _error(rest))
    return abs(change) > CLEARLY * error and same_way > abs(change) / 2


def _differ(a: Floats, b: Floats) -> bool:
    """Means of two halves; a trend within them is no noise that would excuse the difference."""
    error = math.hypot(_error(_detrended(a)), _error(_detrended(b)))
    return abs(float(a.mean() - b.mean())) > CLEARLY * error


def _detrended(values: Floats) -> Floats:
    places = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(places @ values) / float(places @ places)
    rest: Floats = values - slope * places
    return rest


def _error(values: Floats) -> float:
    """Standard error of the mean under autocorrelation."""
    variance, _ = variance_of_sum(values - values.mean())
    return math.sqrt(max(0.0, variance)) / len(values)
