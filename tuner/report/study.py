"""A stored study as its reports need it: read once, judged from its raw records, decided again.

It takes a StoredStudy, which is the same from the database and from a bundle. Invariant: every
figure follows from the stored records and this version's code; what was written as the answer when
the study ended is only compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from storage.rows import Study
from tuner.errors import UserError
from tuner.exchange.bundle import StoredStudy
from tuner.report.recorded import Recorded, recorded
from tuner.report.study_points import Point, point_of
from tuner.search.axis import Axis, is_number
from tuner.search.capacity import Capacity
from tuner.search.decide import Config, Decision, decide
from tuner.search.each_load import EachLoad
from tuner.search.goal import Goal
from tuner.search.importance import Importances, importances
from tuner.search.knob_text import parse_knob
from tuner.search.objective import CAPACITY, objective_from_text
from tuner.search.price import Ladder, ladders
from tuner.search.trial import Outcome
from tuner.search.trials import Trial, explored, trials_of
from tuner.targets.base import KnobRange, Setting

MARGIN = "worst SLO margin"


@dataclass(frozen=True, slots=True)
class StudyReport(Recorded):
    """decision None: the study has no answer, and no_answer says why. importances: by objective,
    and of the worst SLO margin. unread: the stored axes that this version cannot read."""

    goal: Goal
    axes: tuple[Axis, ...]
    points: list[Point]
    decision: Decision | None
    no_answer: str
    importances: dict[str, Importances]
    ladders: list[Ladder]
    unread: tuple[str, ...] = ()

    @property
    def trials(self) -> list[Trial]:
        return [point.trial for point in self.points]

    def unit(self, place: int) -> str:
        """Of an objective's values as they are compared."""
        if len(self.goal.loads) > 1:
            return "× baseline"
        units = [p.estimates[place] for p in self.points]
        return next((found.unit for found in units if found is not None), "")

    @property
    def stored_answer(self) -> str:
        """What was told when the study ended; "" before that."""
        return str((self.study.result or {}).get("answer") or "")


def study_report(stored: StoredStudy) -> StudyReport:
    """Of a search. Raises UserError, StorageError."""
    base = recorded(stored)
    goal = _goal(base)
    axes, unread = _axes(base.study, base.baseline, base.outcomes)
    trials = trials_of(base.outcomes)
    points = [point_of(number, trial, trials, goal) for number, trial in enumerate(trials, 1)]
    decision, why = _decision(base.study, base.outcomes, base.baseline, goal)
    return StudyReport(
        **base.parts(), goal=goal, axes=axes, points=points, decision=decision, no_answer=why,
        importances=_importances(goal, points, axes), ladders=ladders(goal, trials), unread=unread,
    )  # fmt: skip


def _goal(base: Recorded) -> Goal:
    kept = (base.study.space or {})["objectives"]
    objectives = tuple(objective_from_text(text) for text in kept)
    if objectives[0].key == CAPACITY:
        return Capacity(base.slos, base.workloads[0])
    return EachLoad(objectives, base.slos, base.workloads)


def _axes(
    study: Study, baseline: Config, outcomes: Sequence[Outcome]
) -> tuple[tuple[Axis, ...], tuple[str, ...]]:
    """What was searched: the stored texts, or where none can be read, what was seen of it; and
    the texts that cannot be read."""
    found, unread = [], []
    names = {*baseline, *(name for outcome in outcomes for name in outcome.config)}
    anything = {name: KnobRange(baseline.get(name, 0), 1, 0, False) for name in names}
    for text in (study.space or {}).get("axes") or []:
        try:
            part = parse_knob(text, anything)
        except UserError:
            unread.append(text)
            continue
        if isinstance(part, Axis):
            found.append(part)
    if not found:
        found = [
            _seen(name, values)
            for name in sorted(names)
            if len(values := [o.config[name] for o in outcomes if name in o.config]) > 1
            and len(set(values)) > 1
        ]
    return tuple(found), tuple(unread)


def _seen(name: str, values: Sequence[Setting]) -> Axis:
    numbers = sorted({float(v) for v in values if is_number(v)})
    words = tuple(dict.fromkeys(v for v in values if not is_number(v)))
    if words or not numbers:
        return Axis(name, False, 0, 0, values=(*(v for v in numbers), *words))
    return Axis(name, all(n == int(n) for n in numbers), numbers[0], numbers[-1])


def _decision(
    study: Study, outcomes: Sequence[Outcome], baseline: Config, goal: Goal
) -> tuple[Decision | None, str]:
    if not outcomes:
        return None, f"no data: the study is {study.state} and holds no measurement"
    mine = [o for o in outcomes if o.config == baseline]
    try:
        return decide(outcomes, baseline, goal), ""
    except ValueError:
        if not mine:
            return None, "the baseline was not measured"
        reason = (mine[-1].failure_reason or "it has no result").splitlines()[0]
        return None, f"the baseline has no result: {reason}"


def _importances(
    goal: Goal, points: Sequence[Point], axes: Sequence[Axis]
) -> dict[str, Importances]:
    knobs = [axis.name for axis in axes]
    searched = {id(trial) for trial in explored(p.trial for p in points)}
    usable = [
        p for p in points
        if id(p.trial) in searched and p.state != "none" and all(k in p.trial.config for k in knobs)
    ]  # fmt: skip
    positions = [{a.name: position(a, p.trial.config[a.name]) for a in axes} for p in usable]
    found = {}
    for place, objective in enumerate(goal.objectives):
        sign = -1.0 if objective.higher_is_better else 1.0
        values = [p.reading.values[place] for p in usable]
        pairs = [(at, sign * v) for at, v in zip(positions, values, strict=True) if v is not None]
        found[objective.key] = importances(pairs, knobs)
    if goal.slos and not isinstance(goal, Capacity):
        margins = [
            (at, max(p.reading.margins[:-1])) for at, p in zip(positions, usable, strict=True)
        ]
        found[MARGIN] = importances(margins, knobs)
    return found


def position(axis: Axis, value: Setting) -> float:
    """Of a setting on its axis, in [0, 1]."""
    at = axis.encode(value)
    return min(1.0, max(0.0, at)) if math.isfinite(at) else 0.5
