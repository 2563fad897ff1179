"""How many more trials the budget allows, from what the trials so far have taken."""

from __future__ import annotations

from collections.abc import Callable

from tuner.search.budget import Budget, Plan
from tuner.search.ledger import Ledger
from tuner.search.trials import trials_of

UNLIMITED = 10_000
RECENT = 6
LEEWAY = 0.1
"""A tenth of a trial over is no reason to leave its time unused."""


class Pace:
    """before_s: spent before this object was made (calibration, an earlier sitting).

    clock is in seconds and only its differences matter.
    """

    def __init__(
        self,
        budget: Budget,
        plan: Plan,
        ledger: Ledger,
        clock: Callable[[], float],
        before_s: float = 0.0,
    ) -> None:
        self._budget = budget
        self._plan = plan
        self._ledger = ledger
        self._clock = clock
        self._began_s = clock() - before_s

    @property
    def slot_s(self) -> float:
        """What one trial takes: the mean of the last ones, those that were ended early only where
        there are no others; restarts included."""
        usable = [t for t in trials_of(self._ledger.outcomes) if t.ok and t.spent_s > 0]
        whole = [trial for trial in usable if not trial.ended_early] or usable
        recent = [trial.spent_s for trial in whole][-RECENT:]
        return sum(recent) / len(recent) if recent else self._plan.slot_s

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._began_s

    def left(self) -> int:
        """Trials that still fit."""
        if self._budget.trials is not None:
            return self._budget.trials - len(trials_of(self._ledger.outcomes))
        if self._budget.total_s is None:
            return UNLIMITED
        return max(0, int((self._budget.total_s - self.elapsed_s) / self.slot_s + LEEWAY))

    def over(self) -> bool:
        """Whether the time left is too short for one more measurement; never where trials are
        counted."""
        if self._budget.total_s is None:
            return False
        spent = [o.spent_s for o in self._ledger.outcomes if o.ok and o.spent_s > 0][-RECENT:]
        each_s = sum(spent) / len(spent) if spent else self._plan.slot_s / self._plan.loads
        return self._budget.total_s - self.elapsed_s < (1 - LEEWAY) * each_s

    def eta_s(self) -> float:
        """Seconds until the budget is used up."""
        if self._budget.total_s is not None:
            return max(0.0, self._budget.total_s - self.elapsed_s)
        return max(0, self.left()) * self.slot_s
