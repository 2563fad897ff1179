"""When a trial of the search may end before its time: it cannot be the answer any more.

Either an SLO is missed for certain, or the objective is worse than the best configuration's beyond
doubt. Nothing is ever ended for being good: what is good needs its whole window. Looks spend the
error of tuner.measure.stopping (each later one less), none before the warm-up is over. What was
learned stays: such a trial is a finished one with its figures and intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.figures import RATES, Window, figure
from tuner.load import LoadResult
from tuner.measure.stopping import SATURATED_ERROR, UNDECIDABLE, Looks, all_ended_s, look_error
from tuner.measure.window import choose_window, saturation_of
from tuner.records import RequestRecord
from tuner.search.objective import Objective
from tuner.slo import Clause, SloSet
from tuner.stats import Estimate
from tuner.workload import Workload

FIRST_LOOK = 24
"""Requests that have ended after the warm-up at the first look."""

UNSETTLED = 1.25
"""Factor by which a bound must be missed while there is too little to see whether the run had
settled."""


@dataclass(slots=True)
class Beaten:
    """incumbent: the objective of the best configuration so far with its interval; None where
    there is none, or the objective alone decides nothing."""

    slos: SloSet
    workload: Workload
    objective: Objective | None = None
    incumbent: Estimate | None = None
    spread: float = 0.0
    """Log ratio by which two runs of one configuration may differ by noise alone."""
    price_per_hour: float | None = None
    why: str = ""
    looks: Looks = field(default_factory=lambda: Looks(FIRST_LOOK))

    def begin(self) -> None:
        """Another run's requests; the error that looks have spent stays spent."""
        self.why, self.looks = "", Looks(FIRST_LOOK, self.looks.taken)

    def __call__(self, load: LoadResult, warmup_s: float) -> bool:
        if load.now_s() <= warmup_s or not self.looks.due(load.records, warmup_s):
            return False
        self.why = self._look(list(load.records), warmup_s, load.now_s())
        return bool(self.why)

    def _look(self, records: Sequence[RequestRecord], warmup_s: float, now_s: float) -> str:
        arrivals = self.workload.arrivals
        chosen = choose_window(records, arrivals, least_s=warmup_s, end_s=now_s)
        level = SATURATED_ERROR / (self.looks.taken * (self.looks.taken + 1))
        saturation = saturation_of(records, arrivals, chosen.window_s, level)
        if saturation is not None:
            return f"over-saturated: {saturation}"
        if chosen.steady.reached is False:
            return ""
        room = 1.0 if chosen.steady.reached else UNSETTLED
        for clause in self.slos.clauses:
            if self._misses(clause, records, chosen.window_s, room):
                return f"misses {clause.text} for certain (look {self.looks.taken})"
        if self.objective is not None and self._worse(
            self.objective, records, chosen.window_s, room * math.exp(self.spread)
        ):
            return f"{self.objective.key} is worse than the best so far (look {self.looks.taken})"
        return ""

    def _misses(
        self, clause: Clause, records: Sequence[RequestRecord], window: Window, room: float
    ) -> bool:
        if clause.metric in UNDECIDABLE or clause.bound == 0:
            return False
        found = self._figure(clause.key, records, window)
        nearest = found.low / room if clause.upper else found.high * room
        return found.measured and not clause.holds(nearest)

    def _worse(
        self, objective: Objective, records: Sequence[RequestRecord], window: Window, room: float
    ) -> bool:
        if self.incumbent is None or not self.incumbent.measured:
            return False
        found = self._figure(objective.key, records, window)
        if not found.measured:
            return False
        if objective.higher_is_better:
            return found.high * room < self.incumbent.low
        return found.low > self.incumbent.high * room

    def _figure(self, key: str, records: Sequence[RequestRecord], window: Window) -> Estimate:
        """Rates of what had ended in whole; of latencies, what still runs counts as seen."""
        if key in (*RATES, "cost_per_mtok"):
            window = (window[0], all_ended_s(records, window))
        return figure(
            records, window, key, self.slos,
            price_per_hour=self.price_per_hour, confidence=1 - 2 * look_error(self.looks.taken),
        )  # fmt: skip
