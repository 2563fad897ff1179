"""May a measurement end before its time? When every clause is decided, and looks do not cheat.

Who looks again and again finds a "pass" in noise. Looks are therefore few (each takes half as many
requests more than the one before) and each spends its own part of EARLY_ERROR: the k-th look
decides at EARLY_ERROR / (k (k + 1)), whose sum over any number of looks is EARLY_ERROR (alpha
spending, Lan & DeMets 1983, here by Bonferroni's bound). No look counts before the warm-up has
ended in a steady state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner import figures
from tuner.figures.samples import Window
from tuner.load import LoadResult
from tuner.measure.window import choose_window, saturation_of
from tuner.records import RequestRecord
from tuner.slo.grammar import Clause, SloSet
from tuner.workload import Workload

EARLY_ERROR = 0.01
"""Chance that an early stop decides a clause wrongly, over all looks of a run."""

FIRST_LOOK, LOOK_GROWTH = 80, 1.5
"""Requests that have ended inside the window at the first look, and between looks the factor."""

SATURATED_ERROR = 0.005
"""The same for ending an over-saturated run: longer would only be worse."""

UNDECIDABLE = ("queue", "accuracy")
"""Known only after the run."""


def look_error(look: int) -> float:
    """One-sided error of the look-th look (from 1)."""
    return EARLY_ERROR / (look * (look + 1))


@dataclass(slots=True)
class Looks:
    """When the next look is due. Asked twice a second on the generator's event loop, so each
    request is looked at only until it has ended; a record keeps its place meanwhile."""

    first: int
    taken: int = 0
    _ended: int = 0
    _seen: int = 0
    _running: list[int] = field(default_factory=list)
    _next_at: float = 0.0

    def due(self, records: Sequence[RequestRecord], warmup_s: float) -> bool:
        """Whether LOOK_GROWTH as many requests as at the last look have ended after the warm-up."""
        self._running += range(self._seen, len(records))
        self._seen = len(records)
        running = [place for place in self._running if records[place].state == "censored"]
        if len(running) < len(self._running):
            over = set(self._running) - set(running)
            self._ended += sum(records[place].scheduled_s >= warmup_s for place in over)
            self._running = running
        if self._ended < max(self.first, self._next_at):
            return False
        self.taken += 1
        self._next_at = self._ended * LOOK_GROWTH
        return True


@dataclass(slots=True)
class StopRule:
    """Ask it with the load so far; "" means go on, else why the run may end."""

    slos: SloSet
    workload: Workload
    warmup_s: float
    price_per_hour: float | None = None
    looks: Looks = field(default_factory=lambda: Looks(FIRST_LOOK))

    def why(self, load: LoadResult) -> str:
        now_s = load.now_s()
        if not self.slos or now_s <= self.warmup_s:
            return ""
        if not self.looks.due(load.records, self.warmup_s):
            return ""
        return self._look(list(load.records), now_s)

    def _look(self, records: Sequence[RequestRecord], now_s: float) -> str:
        arrivals = self.workload.arrivals
        chosen = choose_window(records, arrivals, least_s=self.warmup_s, end_s=now_s)
        window_s = chosen.window_s
        level = SATURATED_ERROR / (self.looks.taken * (self.looks.taken + 1))
        saturation = saturation_of(records, arrivals, window_s, level)
        if saturation is not None:
            return f"over-saturated: {saturation}"
        if not chosen.steady.reached:
            return ""
        settled_s = (window_s[0], all_ended_s(records, window_s))
        if all(self._decided(clause, records, window_s, settled_s) for clause in self.slos.clauses):
            return f"every clause was decided at look {self.looks.taken}"
        return ""

    def _decided(
        self,
        clause: Clause,
        records: Sequence[RequestRecord],
        window_s: Window,
        settled_s: Window,
    ) -> bool:
        """A pass counts only what had ended, in whole; for a miss, what runs counts as seen."""
        if clause.metric in UNDECIDABLE or (clause.metric == "error_rate" and clause.bound == 0):
            return False
        confidence = 1 - 2 * look_error(self.looks.taken)
        for window, holds in ((settled_s, True), (window_s, False)):
            if holds and clause.stat in ("min", "max"):
                continue  # the next request may be the first to miss it
            found = figures.figure(
                records, window, clause.key, self.slos,
                price_per_hour=self.price_per_hour, confidence=confidence,
            )  # fmt: skip
            ends = (found.low, found.high)
            if found.measured and all(clause.holds(end) is holds for end in ends):
                return True
        return False


def all_ended_s(records: Sequence[RequestRecord], window_s: Window) -> float:
    """Until when every request of the window that was scheduled before has ended."""
    running = [
        r.scheduled_s for r in records
        if r.state == "censored" and window_s[0] <= r.scheduled_s < window_s[1]
    ]  # fmt: skip
    return min(running, default=window_s[1])
