"""What an SLO costs: the best configuration if one bound were tighter or looser.

Nothing is measured: what is stored of every configuration is judged again at a ladder of bounds.
Invariant: a rung says whether its configuration was measured again after it was chosen; where it
was not, its figure is the best of several and so a little too good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.measure import summarize
from tuner.search.capacity import Capacity
from tuner.search.each_load import EachLoad
from tuner.search.goal import Goal
from tuner.search.objective import CAPACITY
from tuner.search.trial import Outcome
from tuner.search.trials import Config, Trial, distinct, of_config
from tuner.slo import Clause, SloSet, VerdictState, judge
from tuner.slo.names import BY_ANY_NAME
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE, Estimate
from tuner.units import show

FACTORS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
BOUND_BY_SLO = ("goodput", "attainment")
"""Figures that are themselves counted against the SLOs."""


@dataclass(frozen=True, slots=True)
class Rung:
    """met: how many of the `known` configurations meet every SLO at their point estimate, and of
    these the best: config None where there is none. state: its SLOs at 95 %. confirmed: its figures
    are of confirmation runs."""

    factor: float
    bound: float
    met: int
    known: int
    config: Config | None = None
    estimate: Estimate | None = None
    runs: int = 0
    state: VerdictState = "inconclusive"
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Ladder:
    """One clause at several bounds, the others as they are. why_not: no bound to vary."""

    clause: Clause
    unit: str
    rungs: tuple[Rung, ...] = ()
    why_not: str = ""

    def bound_text(self, rung: Rung) -> str:
        """`ttft_p95<250 ms`."""
        return f"{self.clause.key}{self.clause.op}{show(rung.bound, self.unit)}"

    def change(self, rung: Rung) -> str:
        if rung.factor == 1:
            return "as it is"
        return "tighter" if (rung.factor < 1) == self.clause.upper else "looser"


@dataclass(frozen=True, slots=True)
class _Known:
    """A configuration with the trials that speak for it; value: of the first objective."""

    config: Config
    trials: list[Trial]
    pooled: Pooled
    value: float
    confirmed: bool


def ladders(
    goal: Goal, trials: Sequence[Trial], factors: Sequence[float] = FACTORS
) -> list[Ladder]:
    """One for each clause of the goal's SLOs; [] where nothing has a result."""
    at = _at_bounds(goal, trials)
    return [_ladder(goal, clause, factors, at, trials) for clause in goal.slos.clauses]


_At = Callable[[SloSet], tuple[list[_Known], int, Goal]]


def _at_bounds(goal: Goal, trials: Sequence[Trial]) -> _At:
    """What answers: which configurations meet these SLOs, of how many, and the goal with them."""
    counted = _counted(goal)
    if isinstance(goal, EachLoad) and not counted:
        known = _known(goal, trials)  # whose figures do not depend on any bound: pooled once

        def again(slos: SloSet) -> tuple[list[_Known], int, Goal]:
            meeting = [one for one in known if _holds(one.pooled, slos)]
            return meeting, len(known), _with_slos(goal, slos)

        return again

    def anew(slos: SloSet) -> tuple[list[_Known], int, Goal]:
        wanted = _with_slos(goal, slos)
        known = _known(wanted, [_judged_again(trial, slos, counted) for trial in trials])
        return [k for k in known if _meets(wanted, k, slos)], len(known), wanted

    return anew


def _counted(goal: Goal) -> bool:
    """Whether a figure that decides, as an objective or in a clause, is counted against SLOs."""
    keys = {*(o.key for o in goal.objectives), *(c.metric for c in goal.slos.clauses)}
    return not keys.isdisjoint(BOUND_BY_SLO)


def _ladder(
    goal: Goal, clause: Clause, factors: Sequence[float], at: _At, study: Sequence[Trial]
) -> Ladder:
    unit = BY_ANY_NAME[clause.metric].unit
    if clause.bound == 0:
        return Ladder(clause, unit, why_not="a bound of 0 has no multiples")
    rungs = []
    for factor in factors:
        bound = clause.bound * factor
        if unit == "share" and bound > 1:
            continue
        moved = replace(clause, bound=bound)
        slos = SloSet(tuple(moved if c == clause else c for c in goal.slos.clauses))
        meeting, known, wanted = at(slos)
        rung = Rung(factor, bound, len(meeting), known)
        rungs.append(_with_best(rung, meeting, wanted, study) if meeting else rung)
    if not any(rung.known for rung in rungs):
        return Ladder(clause, unit, why_not="no configuration has a result")
    return Ladder(clause, unit, tuple(rungs))


def _with_best(rung: Rung, meeting: Sequence[_Known], goal: Goal, study: Sequence[Trial]) -> Rung:
    objective = goal.objectives[0]
    best = sorted(meeting, key=lambda k: k.value, reverse=objective.higher_is_better)[0]
    pooled = goal.pooled(best.trials, CONFIDENCE, study) or best.pooled
    return replace(
        rung, config=best.config, estimate=pooled.summary.get(objective.key), runs=pooled.runs,
        state=pooled.verdict.state, confirmed=best.confirmed,
    )  # fmt: skip


def _known(goal: Goal, trials: Sequence[Trial]) -> list[_Known]:
    found = []
    for config in distinct(trials):
        mine = [trial for trial in of_config(trials, config) if trial.ok]
        confirmed = [trial for trial in mine if trial.stage == "confirm"]
        used = confirmed or mine
        pooled = goal.pooled(used, CONFIDENCE) if used else None
        values = [goal.read(trial, trials).values[0] for trial in used]
        known = [value for value in values if value is not None]
        if pooled is not None and known:
            value = sum(known) / len(known)
            found.append(_Known(config, used, pooled, value, bool(confirmed)))
    return found


def _holds(pooled: Pooled, slos: SloSet) -> bool:
    """Every clause at its point estimate, under each load."""
    estimates = [(c.clause.key, c.estimate) for c in pooled.verdict.clauses]
    return all(
        estimate.measured and clause.holds(estimate.value)
        for clause in slos.clauses
        for key, estimate in estimates
        if key == clause.key
    )


def _meets(goal: Goal, known: _Known, slos: SloSet) -> bool:
    """A capacity: at some level in each of its trials; of a dominated one, which was tried at one
    level alone, nothing but the sampler's guess is known."""
    if isinstance(goal, Capacity):
        return known.pooled.summary[CAPACITY].measured
    return _holds(known.pooled, slos)


def _with_slos(goal: Goal, slos: SloSet) -> Goal:
    if isinstance(goal, Capacity | EachLoad):
        return replace(goal, slos=slos)
    raise TypeError(f"no bounds of a {type(goal).__name__}")


def _judged_again(trial: Trial, slos: SloSet, counted: bool) -> Trial:
    """counted: its figures are counted against the SLOs, and anew."""
    return Trial(tuple(_part_again(part, slos, counted) for part in trial.parts))


def _part_again(part: Outcome, slos: SloSet, counted: bool) -> Outcome:
    made = part.measurement
    if made is None:
        return part
    if counted:
        made = summarize(replace(made), slos)
    return replace(part, measurement=made, verdict=judge(slos, made))
