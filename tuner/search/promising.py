"""What a study found promising but has not confirmed, and what confirming it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.search.budget import trials_to_confirm
from tuner.search.candidates import ranked
from tuner.search.goal import Goal, unit_of
from tuner.search.levels import LOOKS
from tuner.search.objective import Objective
from tuner.search.trials import Config, Trial, explored, of_config
from tuner.targets.base import config_text
from tuner.units import count_text, show


def promising(trials: Sequence[Trial], baseline: Config, goal: Goal) -> list[Config]:
    """Configurations worth confirming, best first, that were better than the baseline in an
    objective, at the point estimate."""
    return [
        config
        for config in ranked(goal, explored(trials), trials)
        if config != baseline and better_in(trials, baseline, config, goal)
    ]


def better_in(
    trials: Sequence[Trial], baseline: Config, config: Config, goal: Goal
) -> list[Objective]:
    """Objectives in which the configuration's mean is better, or alone has a figure."""
    found = []
    for place, objective in enumerate(goal.objectives):
        mine, base = _mean(trials, config, goal, place), _mean(trials, baseline, goal, place)
        if mine is not None and (base is None or objective.better(mine, base)):
            found.append(objective)
    return found


def unconfirmed_text(trials: Sequence[Trial], baseline: Config, goal: Goal) -> str:
    """What was promising, and what budget would confirm it; "" where nothing was."""
    found = promising(trials, baseline, goal)
    if not found:
        return ""
    figures = ", ".join(
        _against(trials, baseline, found[0], goal, objective)
        for objective in better_in(trials, baseline, found[0], goal)
    )
    turned = {name: value for name, value in found[0].items() if baseline.get(name) != value}
    changed = config_text(turned)
    others = f" (and {count_text(len(found) - 1, 'other')})" if len(found) > 1 else ""
    failed = [t for t in trials if t.stage == "confirm" and t.config == found[0] and not t.ok]
    if failed:
        why = failed[-1].failure_reason.splitlines()[0]
        return f"{changed} was promising ({figures}){others}, but its confirmation failed: {why}"
    return (
        f"{changed} was promising ({figures}){others}, but the budget ended before it could be "
        f"confirmed; {needed_text(trials)} would confirm it or not"
    )


def needed_text(trials: Sequence[Trial]) -> str:
    """`a --budget of "10 trials" or about 160s in all`: for the first look, none searched twice."""
    count = trials_to_confirm(len(trials), LOOKS[0])
    whole = [t.spent_s for t in trials if t.ok and t.spent_s > 0 and not t.ended_early]
    if not whole:
        return f'a --budget of "{count} trials" in all'
    each_s = sum(whole) / len(whole)
    total_s = max(count * each_s, sum(t.spent_s for t in trials) + 2 * LOOKS[0] * each_s)
    return f'a --budget of "{count} trials" or about {math.ceil(total_s)}s in all'


def _against(
    trials: Sequence[Trial], baseline: Config, config: Config, goal: Goal, objective: Objective
) -> str:
    place = goal.objectives.index(objective)
    mine, base = _mean(trials, config, goal, place), _mean(trials, baseline, goal, place)
    unit = _unit(trials, config, goal, objective)
    told = "no figure" if base is None else show(base, unit)
    return f"{objective.key} {show(mine, unit) if mine is not None else 'no figure'} against {told}"


def _mean(trials: Sequence[Trial], config: Config, goal: Goal, place: int) -> float | None:
    readings = [goal.read(trial, trials).values[place] for trial in of_config(trials, config)]
    known = [value for value in readings if value is not None]
    return sum(known) / len(known) if known else None


def _unit(trials: Sequence[Trial], config: Config, goal: Goal, objective: Objective) -> str:
    if len(goal.loads) > 1:
        return "× baseline"
    mine = of_config(trials, config)
    return unit_of(goal, objective, [part for trial in mine for part in trial.parts])
