"""How much repeated trials of one configuration differ: gains below that are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.search.goal import Goal, is_whole
from tuner.search.trials import Trial, distinct, of_config

PATIENCE = 8
"""Trials in a row without a gain beyond the noise after which the search has no more to find."""

FEWEST_EXPLORED = 14


@dataclass(frozen=True, slots=True)
class Noise:
    """sd of the log of the first objective between trials of one configuration, from `degrees`
    differences; 0 degrees: nothing was repeated yet."""

    sd: float
    degrees: int

    @property
    def gain(self) -> float:
        """Log ratio that two trials may differ by in about one case of twenty."""
        return 2 * math.sqrt(2) * self.sd

    def text(self, key: str) -> str:
        if not self.degrees:
            return f"noise of {key}: nothing was measured twice"
        return (
            f"noise: {key} of one configuration varies by ±{math.expm1(self.sd):.1%} from run to "
            f"run (sd from {self.degrees} repetition{'s' if self.degrees > 1 else ''})"
        )


def noise_of(goal: Goal, trials: Sequence[Trial]) -> Noise:
    """Over all configurations that were measured in whole more than once."""
    squares, degrees = 0.0, 0
    whole = [trial for trial in trials if is_whole(goal, trial)]
    for config in distinct(whole):
        values = [goal.read(trial, trials).values[0] for trial in of_config(whole, config)]
        logs = [math.log(value) for value in values if value is not None and value > 0]
        if len(logs) > 1:
            mean = sum(logs) / len(logs)
            squares += sum((value - mean) ** 2 for value in logs)
            degrees += len(logs) - 1
    return Noise(math.sqrt(squares / degrees) if degrees else 0.0, degrees)


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
