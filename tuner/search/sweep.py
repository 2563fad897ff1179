"""One knob at a time: its values measured one after the other, all other knobs held.

Values are visited in a seeded random order, so that a drift of the machine does not look like an
effect of the knob; every repetition uses one seed for all values.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import UserError
from tuner.search.ledger import Ledger
from tuner.search.optimize import FAILURE_LIMIT, Events
from tuner.search.pace import Pace
from tuner.search.pool import Pooled, pool
from tuner.search.space import Axis
from tuner.targets.base import Setting
from tuner.trial import Lab, Outcome, run_trial

Config = dict[str, Setting]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One value: what was measured, or why not."""

    value: Setting
    config: Config
    pooled: Pooled | None
    failure: str = ""


def values_of(axis: Axis, points: int) -> list[Setting]:
    """The listed values, or `points` of the range, ends included."""
    if axis.values:
        return list(axis.values)
    if points < 2:
        raise UserError(f"--points must be at least 2 for a range, got {points}")
    return sorted({axis.decode(i / (points - 1)) for i in range(points)})


def configurations(axis: Axis, points: int, baseline: Config) -> list[Config]:
    """UserError names the values that the other knobs forbid."""
    configs = [baseline | {axis.name: value} for value in values_of(axis, points)]
    for config in configs:
        seqs, chunk = config.get("max_num_seqs", 0), config.get("chunk_size", float("inf"))
        if chunk < seqs:
            raise UserError(
                f"{axis.name}={config[axis.name]:g}: chunk_size ({chunk:g}) must be at least "
                f"max_num_seqs ({seqs:g}); leave that value out, or start the server otherwise"
            )
    return configs


def sweep(
    lab: Lab,
    ledger: Ledger,
    configs: Sequence[Config],
    *,
    repeat: int,
    seed: int,
    pace: Pace,
    events: Events,
) -> list[Outcome]:
    """All configurations `repeat` times; ends early when everything fails."""
    outcomes: list[Outcome] = []
    for turn in range(repeat):
        order = list(configs)
        random.Random(seed + turn).shuffle(order)
        for config in order:
            events.begin("sweep", config, pace)
            outcome = run_trial(lab, config, stage="sweep", seed=seed + turn)
            ledger.add(outcome)
            outcomes.append(outcome)
            events.done(outcome)
            if len(outcomes) >= FAILURE_LIMIT and not any(o.ok for o in outcomes):
                events.note(f"all {len(outcomes)} trials failed; sweep ended")
                return outcomes
    return outcomes


def points_of(
    axis: Axis, configs: Sequence[Config], outcomes: Sequence[Outcome], lab: Lab
) -> list[SweepPoint]:
    """In the order of the values."""
    points = []
    for config in configs:
        mine = [o for o in outcomes if o.config == config]
        failures = [o.failure_reason for o in mine if o.failure_reason]
        points.append(
            SweepPoint(
                config[axis.name],
                config,
                pool(mine, lab.slos),
                failures[-1] if failures else "" if mine else "not measured",
            )
        )
    return points
