"""The Pareto front of a study with several objectives: what no other configuration beats in all.

By point estimates over all runs of a configuration; its points carry their intervals, because two
neighbours may be told apart by neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.search.goal import Goal
from tuner.search.objective import Objective
from tuner.search.trials import Config, Trial, distinct, of_config
from tuner.slo.pooled import Pooled


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """values: one per objective."""

    config: Config
    values: tuple[float, ...]
    pooled: Pooled


def front_of(goal: Goal, trials: Sequence[Trial]) -> list[FrontPoint]:
    """Best in the first objective first. Only configurations whose every trial meets the SLOs at
    its point estimate."""
    points = [p for config in distinct(trials) if (p := _point(goal, trials, config)) is not None]
    front = [
        point
        for point in points
        if not any(_dominates(other, point, goal.objectives) for other in points)
    ]
    first = goal.objectives[0]
    return sorted(front, key=lambda p: p.values[0], reverse=first.higher_is_better)


def spread_out(front: Sequence[FrontPoint], goal: Goal) -> list[Config]:
    """The order in which points deserve a confirmation: the best of each objective, the one that
    gives least away in any, then the rest."""
    order: list[FrontPoint] = []
    for place, objective in enumerate(goal.objectives):
        order += sorted(front, key=lambda p: p.values[place], reverse=objective.higher_is_better)[
            :1
        ]
    order += sorted(front, key=lambda point: _given_away(point, front, goal.objectives))
    unique: list[Config] = []
    for point in order:
        if point.config not in unique:
            unique.append(point.config)
    return unique


def _point(goal: Goal, trials: Sequence[Trial], config: Config) -> FrontPoint | None:
    mine = of_config(trials, config)
    readings = [goal.read(trial, trials) for trial in mine]
    if not all(reading.meets for reading in readings):
        return None
    pooled = goal.pooled(mine, study=trials)
    if pooled is None:
        return None
    values = [objective.value(pooled.summary) for objective in goal.objectives]
    known = [value for value in values if value is not None]
    return FrontPoint(config, tuple(known), pooled) if len(known) == len(values) else None


def _dominates(a: FrontPoint, b: FrontPoint, objectives: Sequence[Objective]) -> bool:
    pairs = list(zip(objectives, a.values, b.values, strict=True))
    return not any(o.better(y, x) for o, x, y in pairs) and any(o.better(x, y) for o, x, y in pairs)


def _given_away(
    point: FrontPoint, front: Sequence[FrontPoint], objectives: Sequence[Objective]
) -> float:
    """The largest share (log ratio) by which another is better in one objective."""
    lost = []
    for place, objective in enumerate(objectives):
        values = [other.values[place] for other in front]
        best = (max if objective.higher_is_better else min)(values)
        if best > 0 and point.values[place] > 0:
            lost.append(abs(math.log(best / point.values[place])))
    return max(lost, default=math.inf)
