"""What a study is after: which loads a trial measures, and what its measurements are worth.

A Goal turns trials into what sampler, confirmation and report need. Two exist: EachLoad (one load,
or several of which the worst counts) and Capacity (the highest load that meets the SLOs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.rows import Stage
from tuner.search.objective import CAPACITY, Objective
from tuner.search.trial import Outcome
from tuner.search.trials import Config, Trial
from tuner.slo import SloSet
from tuner.slo.judge import MARGIN_LIMIT
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE, Comparison
from tuner.workload import Workload


@dataclass(frozen=True, slots=True)
class Reading:
    """A trial as the sampler sees it.

    values: one per objective, None where there is no result. margins: one per SLO clause, ≤ 0 when
    met, and a last one for the crash. meets: every SLO holds at its point estimate.
    """

    values: tuple[float | None, ...]
    margins: tuple[float, ...]
    meets: bool


class Goal(Protocol):
    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The first one decides between configurations of which none is better in all."""
        ...

    @property
    def slos(self) -> SloSet: ...

    @property
    def loads(self) -> tuple[Workload, ...]: ...

    @property
    def until_decided(self) -> bool:
        """Whether a measurement may end as soon as its SLOs are decided: its figures beyond them
        do not count."""
        ...

    def next_load(self, stage: Stage, trial: Trial | None, start: float | None) -> Workload | None:
        """What a trial measures next, None when it is complete. start: the level where a search
        for the highest one begins."""
        ...

    def start(self, trials: Sequence[Trial], config: Config, stage: Stage) -> float | None:
        """The level where a new trial of this configuration begins; None: the load's own."""
        ...

    def read(self, trial: Trial, trials: Sequence[Trial]) -> Reading:
        """trials: all of the study, for what the baseline's own figures are."""
        ...

    def told(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """What a complete trial came to, where its measurements do not say so themselves."""
        ...

    def pooled(
        self,
        trials: Sequence[Trial],
        confidence: float = CONFIDENCE,
        study: Sequence[Trial] = (),
    ) -> Pooled | None:
        """All usable trials of one configuration, its SLOs decided at this confidence. study: all
        trials, for how much repeated ones differ."""
        ...

    def compare(
        self,
        baseline: Sequence[Trial],
        candidate: Sequence[Trial],
        objective: Objective,
        confidence: float = CONFIDENCE,
        study: Sequence[Trial] = (),
    ) -> Comparison | None:
        """Candidate over baseline, paired by seed; None without a pair. study as for pooled."""
        ...


def no_result(objectives: Sequence[Objective], slos: SloSet) -> Reading:
    """What a failed trial tells: every clause violated, and the crash's own constraint."""
    margins = (MARGIN_LIMIT,) * len(slos.clauses) + (1.0,)
    return Reading((None,) * len(objectives), margins, meets=False)


def unit_of(goal: Goal, objective: Objective, parts: Sequence[Outcome]) -> str:
    """Of an objective's figure; "" where no part of a trial has one."""
    if objective.key == CAPACITY:
        return goal.loads[0].arrivals.unit
    made = [part.measurement for part in parts if part.measurement is not None]
    found = [one.summary[objective.key] for one in made if objective.key in one.summary]
    return found[0].unit if found else ""


def is_whole(goal: Goal, trial: Trial) -> bool:
    """Whether its figures may be compared: not of a measurement that was ended for its badness."""
    return trial.ok and (goal.until_decided or not trial.ended_early)


def is_complete(goal: Goal, trial: Trial) -> bool:
    return not trial.ok or goal.next_load(trial.stage, trial, None) is None
