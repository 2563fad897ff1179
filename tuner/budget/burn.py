"""How fast an error budget may burn: the four window pairs of Google's SRE workbook.

A factor of 14.4 over 1 h uses 2 % of a 30-day budget, 6 over 6 h 5 %, 3 over 1 d 10 %, 1 over 3 d
10 %; the short window ends the alert soon after the cause has gone. Invariant: every alert can
fire: a factor that no share of bad events could reach is lowered to MOST_BAD of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_BAD = 0.9
"""A loose target (p50, p90) has budgets that 14.4 times over would be more than all events."""

FEWEST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """factor: how many times the sustainable rate; windows as PromQL writes them."""

    factor: float
    long: str
    short: str
    severity: str

    def limit(self, budget: float) -> float:
        """The share of bad events, in both windows, from which the alert fires."""
        return min(self.factor * budget, MOST_BAD)


BURN_WINDOWS = (
    BurnWindow(14.4, "1h", "5m", "page"),
    BurnWindow(6, "6h", "30m", "page"),
    BurnWindow(3, "1d", "2h", "ticket"),
    BurnWindow(1, "3d", "6h", "ticket"),
)

WINDOW_S = {
    "5m": 300, "30m": 1800, "1h": 3600, "2h": 7200, "6h": 21_600, "1d": 86_400, "3d": 259_200,
}  # fmt: skip
"""Every window that is recorded, shortest first."""


def fewest_events(budget: float) -> int:
    """So many events that a single bad one is not the whole budget."""
    return max(FEWEST_EVENTS, math.ceil(1 / budget - 1e-9))


def fires(
    window: BurnWindow, budget: float, *, long: float, short: float, events: float, least: int
) -> bool:
    """Whether a window pair's alert fires: both shares of bad events are above the limit, and the
    long window holds enough events to tell. tuner/rules writes the same as PromQL."""
    limit = window.limit(budget)
    return long > limit and short > limit and events >= least
