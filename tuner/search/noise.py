"""How much repeated trials of one configuration differ: gains below that are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.search.goal import Goal, is_whole, unit_of
from tuner.search.trials import Trial, distinct, of_config
from tuner.units import count_text

PATIENCE = 8
"""Trials in a row without a gain beyond the noise after which the search has no more to find."""

FEWEST_EXPLORED = 14


@dataclass(frozen=True, slots=True)
class Noise:
    """sd of the log of the first objective between trials of one configuration, from `degrees`
    differences; 0 degrees: nothing was repeated yet. by_load: (load, sd) where there are several,
    of which sd is the largest: the worst ratio of a trial hides what single loads vary by."""

    sd: float
    degrees: int
    by_load: tuple[tuple[str, float], ...] = ()

    @property
    def gain(self) -> float:
        """Log ratio that two trials may differ by in about one case of twenty."""
        return 2 * math.sqrt(2) * self.sd

    def text(self, key: str) -> str:
        if not self.degrees:
            return f"noise of {key}: nothing was measured twice"
        told = f"by ±{math.expm1(self.sd):.1%}"
        if self.by_load:
            told = ", ".join(f"by ±{math.expm1(sd):.1%} under {load}" for load, sd in self.by_load)
        return (
            f"noise: {key} of one configuration varies {told} from run to run (sd from "
            f"{count_text(self.degrees, 'repetition')}{' of each load' if self.by_load else ''})"
        )


def noise_of(goal: Goal, trials: Sequence[Trial]) -> Noise:
    """Over all configurations that were measured in whole more than once."""
    whole = [trial for trial in trials if is_whole(goal, trial)]
    groups = [figures_of(goal, of_config(whole, config), trials) for config in distinct(whole)]
    found = []
    for place in range(len(groups[0]) if groups else 0):
        logs = [[math.log(v) for v in group[place].values if v > 0] for group in groups]
        repeated = [one for one in logs if len(one) > 1]
        degrees = sum(len(one) - 1 for one in repeated)
        squares = sum(sum((x - sum(one) / len(one)) ** 2 for x in one) for one in repeated)
        sd = math.sqrt(squares / degrees) if degrees else 0.0
        found.append((groups[0][place].load, sd, degrees))
    if not found:
        return Noise(0.0, 0)
    loads = tuple((load, sd) for load, sd, degrees in found if degrees) if len(found) > 1 else ()
    return Noise(max(sd for _, sd, _ in found), max(n for _, _, n in found), loads)


@dataclass(frozen=True, slots=True)
class Figures:
    """The first objective of several trials of one configuration, in order of time, under a load
    ("" where there is but one)."""

    load: str
    unit: str
    values: tuple[float, ...]


def figures_of(goal: Goal, mine: Sequence[Trial], trials: Sequence[Trial]) -> list[Figures]:
    """One for each load, as they were measured there. mine: of one configuration."""
    objective = goal.objectives[0]
    if len(goal.loads) == 1:
        read = [goal.read(trial, trials).values[0] for trial in mine]
        known = tuple(value for value in read if value is not None)
        unit = unit_of(goal, objective, [part for trial in mine for part in trial.parts])
        return [Figures("", unit, known)]
    found = []
    for place, load in enumerate(goal.loads):
        parts = [trial.parts[place] for trial in mine if trial.ok and len(trial.parts) > place]
        made = [part.measurement for part in parts if part.measurement is not None]
        values = [objective.value(one.summary) for one in made]
        known = tuple(value for value in values if value is not None)
        found.append(Figures(str(load), unit_of(goal, objective, parts), known))
    return found


def exhausted(goal: Goal, explored: Sequence[Trial], trials: Sequence[Trial]) -> str:
    """Why no plausible gain is left to be searched for; "" while there may be one.

    Only where something meets the SLOs (before that, meeting them is the gain) and one objective
    is sought: the last PATIENCE trials must have beaten the best before them by no more than the
    noise.
    """
    noise = noise_of(goal, trials)
    if len(explored) < FEWEST_EXPLORED or len(goal.objectives) > 1 or not noise.degrees:
        return ""
    before = _best(goal, explored[:-PATIENCE], trials)
    after = _best(goal, explored[-PATIENCE:], trials)
    if before is None:
        return ""
    objective = goal.objectives[0]
    gained = after is not None and objective.better(after, before)
    if gained and after is not None and abs(math.log(after / before)) > noise.gain:
        return ""
    return (
        f"search ended: none of the last {PATIENCE} trials was better than the best by more than "
        f"the noise (±{math.expm1(noise.gain):.1%} between two runs)"
    )


def _best(goal: Goal, explored: Sequence[Trial], trials: Sequence[Trial]) -> float | None:
    readings = [goal.read(trial, trials) for trial in explored]
    values = [r.values[0] for r in readings if r.meets and r.values[0] is not None]
    known = [value for value in values if value is not None and value > 0]
    objective = goal.objectives[0]
    return (max if objective.higher_is_better else min)(known, default=None)
