"""The Pareto front of a study with several objectives: as a table, and as stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.report.table import aligned, estimate_text
from tuner.search.front import FrontPoint, front_of
from tuner.search.goal import Goal
from tuner.search.trials import Trial
from tuner.targets.base import config_text


def front_lines(goal: Goal, trials: Sequence[Trial]) -> list[str]:
    """Empty for one objective; each figure with its interval and samples."""
    if len(goal.objectives) < 2:
        return []
    front = front_of(goal, trials)
    if not front:
        return ["no configuration met the SLOs: there is no front"]
    keys = [objective.key for objective in goal.objectives]
    rows = [["", *keys, "runs"]]
    rows += [
        [
            config_text(point.config),
            *(estimate_text(point.pooled.summary.get(key)) for key in keys),
            str(point.pooled.runs),
        ]
        for point in front
    ]
    wanted = ", ".join(map(str, goal.objectives))
    return [f"Pareto front ({wanted}): none of these is beaten in every objective", *aligned(rows)]


def front_dicts(goal: Goal, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """JSON-able, best in the first objective first; empty for one objective."""
    if len(goal.objectives) < 2:
        return []
    return [_point(point, goal) for point in front_of(goal, trials)]


def _point(point: FrontPoint, goal: Goal) -> dict[str, Any]:
    figures = {o.key: point.pooled.summary[o.key].as_dict() for o in goal.objectives}
    return {"config": dict(point.config), "runs": point.pooled.runs, "figures": figures}
