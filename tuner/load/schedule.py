"""Which sessions a process sends and when: process k of n has the sessions k, k + n, k + 2n, …"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.load.plan import LoadPlan

ENDING = ("at_once", "trace")
"""Arrivals that end by themselves; a rate ends only with the sending time."""


@dataclass(frozen=True, slots=True)
class Shard:
    """This process among all that send together."""

    number: int = 0
    of: int = 1

    def share(self, clients: int) -> int:
        """How many of so many clients are this process's: those numbered k, k + n, …"""
        return max(0, -(-(clients - self.number) // self.of))


def session_numbers(plan: LoadPlan, shard: Shard) -> Iterator[int]:
    """The shard's sessions; without end where nothing limits them."""
    most = plan.most_sessions
    if most is None:
        return itertools.count(shard.number, shard.of)
    return iter(range(shard.number, most, shard.of))


class Schedule:
    """Open loop: the shard's (session, scheduled time in s), ascending; can be looked into ahead.

    Every process draws the same times, so that together they send what one alone would.
    """

    def __init__(self, plan: LoadPlan, shard: Shard) -> None:
        self._times = enumerate(plan.workload.arrivals.times(plan.seed, plan.send_s))
        self._plan, self._shard = plan, shard
        self._ahead: deque[tuple[int, float]] = deque()
        self._ended = False
        self.complete = False
        """Whether all there is to send was drawn, before the time was up."""

    def __iter__(self) -> Iterator[tuple[int, float]]:
        while self._ahead or self._draw():
            yield self._ahead.popleft()

    def sessions_ahead(self) -> Iterator[int]:
        """The same sessions without taking them."""
        while self._draw():
            yield self._ahead[-1][0]

    def _draw(self) -> bool:
        most = self._plan.most_sessions
        for session, scheduled_s in self._times:
            if scheduled_s >= self._plan.send_s or (most is not None and session >= most):
                self.complete = scheduled_s < self._plan.send_s
                self._times = enumerate(())
                self._ended = True
                return False
            if session % self._shard.of == self._shard.number:
                self._ahead.append((session, scheduled_s))
                return True
        if not self._ended:
            self._ended = True
            self.complete = self._plan.workload.arrivals.kind in ENDING
        return False
