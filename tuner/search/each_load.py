"""The goal of a study under one load, or under several of which the worst counts.

Under several, an objective is the worst ratio to the baseline's own figure, every SLO must hold
under each, and a gain is claimed only where every load shows one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storage.rows import Stage
from tuner.search.goal import Reading, no_result
from tuner.search.objective import Objective
from tuner.search.pool import noise_of, pool
from tuner.search.trial import Outcome
from tuner.search.trials import Config, Trial
from tuner.slo import SloSet, Verdict, VerdictState
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE, Comparison, Estimate, RunNoise, compare_rates, run_noise
from tuner.stats.compare import Outcome as Result
from tuner.stats.runs import FEWEST_DEGREES
from tuner.units import digits
from tuner.workload import Workload


@dataclass(frozen=True, slots=True)
class EachLoad:
    objectives: tuple[Objective, ...]
    slos: SloSet
    loads: tuple[Workload, ...]

    @property
    def until_decided(self) -> bool:
        return False

    def next_load(self, stage: Stage, trial: Trial | None, start: float | None) -> Workload | None:
        """A search's trial ends with the first load whose SLOs it misses for certain."""
        parts = trial.parts if trial is not None else ()
        if any(not part.ok for part in parts):
            return None
        if stage in ("sweep", "search") and any(_missed(part) for part in parts):
            return None
        return self.loads[len(parts)] if len(parts) < len(self.loads) else None

    def start(self, trials: Sequence[Trial], config: Config, stage: Stage) -> float | None:
        return None

    def read(self, trial: Trial, trials: Sequence[Trial]) -> Reading:
        if not trial.ok:
            return no_result(self.objectives, self.slos)
        whole = len(trial.parts) == len(self.loads)
        values = tuple(
            self._value(trial, trials, objective) if whole else None
            for objective in self.objectives
        )
        clauses = np.array([part.margins(self.slos)[:-1] for part in trial.parts])
        worst = [float(margin) for margin in clauses.max(axis=0)]
        # An objective that is not finite violates the last constraint, as a crash does; loads left
        # out because one was missed do not: that one's clause is violated already.
        crash = 1.0 if whole and None in values else -1.0
        meets = whole and all(part.meets_by_estimate for part in trial.parts)
        return Reading(values, (*worst, crash), meets)

    def _value(self, trial: Trial, trials: Sequence[Trial], objective: Objective) -> float | None:
        figures = [_figure(part, objective) for part in trial.parts]
        if len(self.loads) == 1:
            return figures[0]
        ratios = []
        for place, value in enumerate(figures):
            reference = _reference(trials, place, objective)
            if value is None or reference is None:
                return None
            ratios.append(value / reference)
        return objective.worst(ratios)

    def told(self, trial: Trial, trials: Sequence[Trial]) -> str:
        value = self.read(trial, trials).values[0]
        # While baselines are measured, what they are compared with, their mean, is not known yet.
        if len(self.loads) == 1 or value is None or trial.stage == "baseline":
            return ""
        figure = f"{self.objectives[0].key} {digits(value)} × baseline"
        return f"worst of {len(self.loads)} loads: {figure}"

    def pooled(
        self,
        trials: Sequence[Trial],
        confidence: float = CONFIDENCE,
        study: Sequence[Trial] = (),
    ) -> Pooled | None:
        complete = [t for t in trials if t.ok and len(t.parts) == len(self.loads)]
        each = [
            pool(
                [trial.parts[place] for trial in complete], self.slos, confidence,
                noise_of(_repeated(study, place)) if study else None,
            )
            for place in range(len(self.loads))
        ]  # fmt: skip
        found = [one for one in each if one is not None]
        if len(found) < len(self.loads):
            return None
        if len(found) == 1:
            return found[0]
        named = tuple((str(load), one) for load, one in zip(self.loads, found, strict=True))
        return Pooled(found[0].runs, self._worst_figures(found), _all_of(found), named)

    def _worst_figures(self, found: Sequence[Pooled]) -> dict[str, Estimate]:
        """Of each figure that an objective or a clause names, the worst load's."""
        higher = {objective.key: objective.higher_is_better for objective in self.objectives}
        higher |= {clause.key: not clause.upper for clause in self.slos.clauses}
        worst = {}
        for key, more in higher.items():
            estimates = [one.summary[key] for one in found if key in one.summary]
            if len(estimates) == len(found):
                worst[key] = (min if more else max)(estimates, key=lambda e: e.value)
        return worst

    def compare(
        self,
        baseline: Sequence[Trial],
        candidate: Sequence[Trial],
        objective: Objective,
        confidence: float = CONFIDENCE,
        study: Sequence[Trial] = (),
    ) -> Comparison | None:
        pairs = paired(baseline, candidate, lambda t: t.ok and len(t.parts) == len(self.loads))
        if not pairs:
            return None
        found = []
        for place in range(len(self.loads)):
            values = [
                (_figure(a.parts[place], objective), _figure(b.parts[place], objective))
                for a, b in pairs
            ]
            known = [(x, y) for x, y in values if x is not None and y is not None]
            if not known:
                return None
            found.append(
                compare_rates(
                    [x for x, _ in known], [y for _, y in known],
                    higher_is_better=objective.higher_is_better, confidence=confidence,
                    noise=_noise_of(study, place, objective),
                )
            )  # fmt: skip
        return worst_of(found, objective)


def paired(
    baseline: Sequence[Trial], candidate: Sequence[Trial], usable: Callable[[Trial], bool]
) -> list[tuple[Trial, Trial]]:
    """Trials of both under the same seed, in order of the candidate's."""
    by_seed = {trial.seed: trial for trial in baseline if usable(trial)}
    return [
        (by_seed[trial.seed], trial)
        for trial in candidate
        if trial.seed in by_seed and usable(trial)
    ]


def worst_of(found: Sequence[Comparison], objective: Objective) -> Comparison:
    """One comparison for several loads: a gain needs one under each (each at the full level: all
    must hold, so none is a second chance), a loss under one is a loss."""
    if len(found) == 1:
        return found[0]
    outcomes = [one.outcome for one in found]
    outcome: Result = "inconclusive"
    if "worse" in outcomes:
        outcome = "worse"
    elif all(one == "improved" for one in outcomes):
        outcome = "improved"
    elif all(one in ("improved", "no_difference") for one in outcomes):
        outcome = "no_difference"
    worst = objective.worst([one.ratio for one in found if not math.isnan(one.ratio)] or [math.nan])
    shown = next((one for one in found if one.ratio == worst), found[0])
    return replace(shown, outcome=outcome, method=f"{shown.method}, worst of {len(found)} loads")


def _figure(part: Outcome, objective: Objective) -> float | None:
    if not part.ok or part.measurement is None:
        return None
    return objective.value(part.measurement.summary)


def _repeated(study: Sequence[Trial], place: int) -> list[list[Outcome]]:
    """The outcomes of each configuration under the load at this place; those of another stage were
    measured at another time, and what lies between is no noise from run to run."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for trial in study:
        if trial.ok and len(trial.parts) > place:
            key = (trial.stage, *sorted(trial.config.items()))
            groups.setdefault(key, []).append(trial.parts[place])
    return list(groups.values())


def _noise_of(study: Sequence[Trial], place: int, objective: Objective) -> RunNoise | None:
    """Of the objective between trials of one configuration; None where too little was repeated
    for it to say more than the pairs do."""
    groups = [
        [estimate for part in parts if (estimate := _estimate(part, objective)) is not None]
        for parts in _repeated(study, place)
    ]
    found = run_noise(groups, with_sampling=True)
    return found if sum(max(0, len(group) - 1) for group in groups) >= FEWEST_DEGREES else None


def _estimate(part: Outcome, objective: Objective) -> Estimate | None:
    made = part.measurement
    if made is None or not part.ok or part.ended_early:
        return None
    return made.summary.get(objective.key)


def _reference(trials: Sequence[Trial], place: int, objective: Objective) -> float | None:
    """The baseline's mean figure under the load at this place."""
    figures = [
        _figure(trial.parts[place], objective)
        for trial in trials
        if trial.stage == "baseline" and trial.ok and len(trial.parts) > place
    ]
    known = [value for value in figures if value is not None and value > 0]
    return sum(known) / len(known) if known else None


def _missed(part: Outcome) -> bool:
    return part.verdict is not None and part.verdict.state == "fail"


def _all_of(found: Sequence[Pooled]) -> Verdict:
    """Every load's clauses; they hold only together."""
    states = {one.verdict.state for one in found}
    state: VerdictState = "inconclusive" if "inconclusive" in states else "pass"
    if "fail" in states:
        state = "fail"
    clauses = tuple(clause for one in found for clause in one.verdict.clauses)
    reason = next((one.verdict.reason for one in found if one.verdict.reason), "")
    return Verdict(state, clauses, reason)
