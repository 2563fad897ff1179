"""Was more offered than served? An open load beyond capacity has no steady state to measure.

The backlog (scheduled and not ended) must grow steadily: by more than chance over equal slices of
the window, by a share of what was offered that matters, in the second half as well as in the first,
and requests must take longer and longer. So neither a start from empty nor long prefills nor a busy
but stable queue are taken for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, t

from tuner.stats.dependence import variance_of_sum

Floats = npt.NDArray[np.float64]

SLICES = 20
FEWEST_REQUESTS = 50
LEVEL = 0.05
"""Chance of calling growth what is none, for one look at one run."""

LEAST_GROWTH = 0.05
"""Of the requests offered: a smaller backlog is no matter, and a stable queue may build it up."""

LEAST_TREND = 0.4
"""Rank correlation of the time a finished request took with its place in the schedule."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Rates in requests per second of the window; grown_by in requests, over all of it."""

    offered_rps: float
    completed_rps: float
    grown_by: float

    def __str__(self) -> str:
        return (
            f"offered {self.offered_rps:.3g} req/s, completed {self.completed_rps:.3g} req/s; "
            f"the backlog grew by {self.grown_by:.0f} requests"
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "offered_rps": self.offered_rps, "completed_rps": self.completed_rps,
            "grown_by": self.grown_by,
        }  # fmt: skip


def find_saturation(
    scheduled_s: Floats,
    ended_s: Floats,
    window: tuple[float, float],
    *,
    level: float = LEVEL,
) -> Saturation | None:
    """None where the load was served, or too little was sent to tell.

    ended_s: NaN for requests that have not ended. Requests outside the window count in the backlog
    at its edges only.
    """
    start_s, end_s = window
    inside = (scheduled_s >= start_s) & (scheduled_s < end_s)
    offered = int(inside.sum())
    if offered < FEWEST_REQUESTS or end_s <= start_s:
        return None
    edges = np.linspace(start_s, end_s, SLICES + 1)
    ends = np.sort(ended_s[~np.isnan(ended_s)])
    arrived = np.searchsorted(np.sort(scheduled_s), edges, side="left")
    backlog = (arrived - np.searchsorted(ends, edges, side="left")).astype(float)
    steps = np.diff(backlog)
    grown = float(backlog[-1] - backlog[0])
    halves = float(steps[: SLICES // 2].sum()), float(steps[SLICES // 2 :].sum())
    if grown < LEAST_GROWTH * offered or min(halves) < grown / 6:
        return None
    variance, _ = variance_of_sum(steps - steps.mean())
    if grown <= float(t.isf(level, SLICES - 1)) * math.sqrt(variance):
        return None
    done = inside & (ended_s < end_s)
    if done.sum() < 10 or _trend((ended_s - scheduled_s)[done], scheduled_s[done]) < LEAST_TREND:
        return None
    completed = int(((ended_s >= start_s) & (ended_s < end_s)).sum())
    span_s = end_s - start_s
    return Saturation(offered / span_s, completed / span_s, grown)


def _trend(values: Floats, at_s: Floats) -> float:
    """Spearman's rank correlation; 0 for values that do not vary."""
    if np.ptp(values) <= 0:
        return 0.0
    return float(np.corrcoef(rankdata(values), rankdata(at_s))[0, 1])
