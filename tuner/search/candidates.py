"""Which points are measured before the sampler chooses, and which deserve a confirmation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.knobs import KNOBS
from tuner.search.axis import Axis
from tuner.search.front import front_of, spread_out
from tuner.search.goal import Goal, is_complete, is_whole
from tuner.search.noise import noise_of
from tuner.search.space import Space
from tuner.search.trial import Outcome, worst_margin
from tuner.search.trials import Config, Trial, distinct, number_of, of_config
from tuner.targets.base import Setting

SWEEPS = (
    ("chunk_size", 0.5), ("chunk_size", 0.25), ("max_num_seqs", 0.66), ("chunk_size", 0.75),
    ("gpu_memory_utilization", 0.5), ("max_num_seqs", 0.4),
)  # fmt: skip
"""Where single-variable sweeps look, as positions on each knob's axis; the knob that decides how
long others wait comes first."""

NEARLY = 0.15
"""A worst margin (log ratio) up to which a point that misses an SLO may be noise."""

LEAST_ALIKE, MOST_ALIKE = 0.03, 0.2
"""Bounds of the noise within which two candidates' objectives are not told apart."""

MEMORY = "gpu_memory_utilization"
MEMORY_MARGIN = 0.02
"""A share of device memory this close below one that failed is not recommended: it starts fine and
fails with the first peak that is a little higher."""


def sweep_points(
    space: Space, baseline: Config, count: int, levers: Sequence[tuple[str, str]] = ()
) -> list[Config]:
    """Up to count configurations that differ from the baseline in one knob. levers: (knob,
    direction) that come first."""
    axes = {axis.name: axis for axis in space.axes}
    known = {name for name, _ in SWEEPS}
    others = [(name, position) for position in (0.5, 0.25) for name in axes if name not in known]
    advised = [
        (name, position)
        for name, direction in levers
        if name in axes
        and (position := _towards(axes[name], baseline[name], direction)) is not None
    ]
    points = [
        _feasible(baseline | {name: axes[name].decode(position)})
        for name, position in (*advised, *SWEEPS, *others)
        if name in axes
    ]
    unique = [p for i, p in enumerate(points) if p not in points[:i] and p != baseline]
    return unique[:count]


def _towards(axis: Axis, value: Setting, direction: str) -> float | None:
    """Half the way from a setting to an end of its axis; None where a direction has none."""
    ends = {"up": 1.0, "on": 1.0, "down": 0.0, "off": 0.0}
    if direction not in ends or isinstance(value, str):
        return None
    if isinstance(value, bool):
        return axis.encode(direction == "on")
    return (axis.encode(value) + ends[direction]) / 2


def ranked(goal: Goal, explored: Sequence[Trial], trials: Sequence[Trial]) -> list[Config]:
    """Configurations worth confirming, best first: those that meet every clause at the point
    estimate and are not too close to one that ran out of memory, by the objective (several: along
    the front). Several trials of a configuration count by their mean.

    Who is within the noise of the best is as good: among these the one farthest from its bounds
    comes first, for it is the likeliest to be confirmed.
    """
    usable = [t for t in explored if not _near_memory_failure(t.config, trials)]
    if len(goal.objectives) > 1:
        return spread_out(front_of(goal, usable), goal)
    objective = goal.objectives[0]
    scored = []
    for config in distinct(usable):
        readings = [goal.read(t, trials) for t in of_config(usable, config)]
        values = [reading.values[0] for reading in readings]
        known = [value for value in values if value is not None]
        if known and all(reading.meets for reading in readings):
            margin = max(max(reading.margins) for reading in readings)
            scored.append((sum(known) / len(known), margin, config))
    scored.sort(key=lambda one: one[0], reverse=objective.higher_is_better)
    room = _alike(goal, trials)
    as_good = [one for one in scored if _apart(one[0], scored[0][0]) <= room]
    as_good.sort(key=lambda one: one[1])
    return [config for _, _, config in (*as_good, *scored[len(as_good) :])]


def _alike(goal: Goal, trials: Sequence[Trial]) -> float:
    """Log ratio of the objective up to which two trials are called as good as each other."""
    noise = noise_of(goal, trials)
    return min(MOST_ALIKE, max(LEAST_ALIKE, noise.gain))


def _apart(a: float, b: float) -> float:
    return abs(math.log(a / b)) if a > 0 and b > 0 else abs(a - b)


def nearly(goal: Goal, explored: Sequence[Trial], trials: Sequence[Trial]) -> Config | None:
    """The configuration nearest to meeting every clause, if noise may have kept it from that."""
    known = [
        (max(goal.read(t, trials).margins), t)
        for t in explored
        if is_complete(goal, t) and is_whole(goal, t)
    ]
    margin, trial = min(known, key=lambda pair: pair[0], default=(math.inf, None))
    return trial.config if trial is not None and margin <= NEARLY else None


def closest(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The outcome with a result that is nearest to meeting every clause."""
    with_result = [o for o in outcomes if o.ok]
    return min(with_result, key=worst_margin, default=None)


def _near_memory_failure(config: Config, trials: Sequence[Trial]) -> bool:
    """Whether another trial failed with hardly more memory and no larger load on it."""
    share = number_of(config, MEMORY)
    failed = [t for t in trials if t.failed and "memory" in t.failure_reason.lower()]
    return share is not None and any(
        share >= (number_of(trial.config, MEMORY) or math.inf) - MEMORY_MARGIN
        and _as_heavy(config, trial.config)
        for trial in failed
    )


def _as_heavy(config: Config, than: Config) -> bool:
    """Whether every other knob is the same, or a number at least as large."""
    for name, value in than.items():
        mine, other = number_of(config, name), number_of(than, name)
        larger = mine is not None and other is not None and mine >= other
        if name != MEMORY and config.get(name) != value and not larger:
            return False
    return True


def _feasible(config: Config) -> Config:
    """A chunk below max_num_seqs takes max_num_seqs down with it."""
    seqs, chunk = number_of(config, "max_num_seqs"), number_of(config, "chunk_size")
    if seqs is None or chunk is None or chunk >= seqs:
        return config
    return config | {"max_num_seqs": max(int(KNOBS["max_num_seqs"].low or 1), int(chunk))}
