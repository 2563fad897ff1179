"""One knob at a time: its values measured one after the other, all other knobs held.

Values are visited in a seeded random order, so that a drift of the machine does not look like an
effect of the knob, but all loads of one start of the server together; every repetition uses one
seed for all values. Invariant: what the ledger holds already is not measured again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.knobs import KNOBS
from tuner.errors import UserError
from tuner.search.axis import Axis
from tuner.search.ledger import Ledger
from tuner.search.pace import Pace
from tuner.search.pool import pool
from tuner.search.session import FAILURE_LIMIT, Events
from tuner.search.space import Space
from tuner.search.trial import Lab, Outcome, run_trial
from tuner.search.trials import number_of
from tuner.slo import SloSet
from tuner.slo.pooled import Pooled
from tuner.targets.base import KnobRange, Setting, setting_text
from tuner.targets.order import grouped
from tuner.workload import Workload

Config = dict[str, Setting]

LOAD_KNOBS = {"concurrency": True, "rate": False}
"""Knobs of the load, not of the server: name → whether the loop is closed."""

LOAD_RANGES = {
    "concurrency": KnobRange(1, 1, 1_000_000, live=True),
    "rate": KnobRange(1.0, 1e-6, 1e6, live=True),
}

WIDER = 4.0
"""How far a diagnosed knob is followed in its direction, as a multiple of its present value."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is applied and sent; value: the swept knob's."""

    value: Setting
    config: Config
    workload: Workload


@dataclass(frozen=True, slots=True)
class Line:
    """One knob under one load: the steps in the order of its values."""

    axis: Axis
    workload: Workload
    steps: tuple[Step, ...]


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
    return list(dict.fromkeys(axis.decode(i / (points - 1)) for i in range(points)))


def lines_of(space: Space, loads: Sequence[Workload], points: int, baseline: Config) -> list[Line]:
    """Each knob of the space under each load. UserError names a listed value that the other knobs
    forbid; of a range the forbidden ones are left out."""
    lines = []
    for axis in space.axes:
        allowed = []
        for value in values_of(axis, points):
            config = space.followed(baseline | {axis.name: value})
            why = _forbidden(space, axis, config)
            if why and axis.values:
                raise UserError(f"{axis.name}={setting_text(value)}: {why}")
            if not why:
                allowed.append((value, config))
        if not allowed:
            raise UserError(f"--knob {axis}: no value goes with the other knobs' settings")
        for load in loads:
            steps = tuple(Step(value, config, load) for value, config in allowed)
            lines.append(Line(axis, load, steps))
    return lines


def load_lines(axis: Axis, loads: Sequence[Workload], points: int, baseline: Config) -> list[Line]:
    """A knob of the load: the server stays as it is. UserError for a load of the other kind."""
    for load in loads:
        if load.arrivals.closed != LOAD_KNOBS[axis.name]:
            kind = "closed (concurrency=…)" if load.arrivals.closed else "open (rate=…)"
            raise UserError(f"--knob {axis.name}: --workload {str(load)!r} is {kind}")
    values = values_of(axis, points)
    broken = [v for v in values if axis.name == "concurrency" and float(v) % 1]
    if broken:
        raise UserError(f"--knob {axis.name}: {setting_text(broken[0])} is no number of clients")
    return [
        Line(axis, load, tuple(Step(v, dict(baseline), load.at(float(v))) for v in values))
        for load in loads
    ]


def towards(name: str, bounds: KnobRange, direction: str, points: int) -> Axis | None:
    """Values of a knob from its present one in a direction ("up", "down", "on", "off"); None where
    there is nowhere to go or no way to say it in numbers."""
    knob = KNOBS.get(name)
    if knob is None:
        return None
    if knob.kind == "bool":
        return Axis(name, True, 0, 0, values=(bounds.value, not bounds.value))
    value = bounds.value
    if isinstance(value, (str, bool)) or direction not in ("up", "down"):
        return None
    low, high = max(bounds.low, knob.low or 0.0), min(bounds.high, knob.high or float("inf"))
    if direction == "up":
        low, high = float(value), min(high, value * WIDER)
    else:
        low, high = max(low, value / WIDER), float(value)
    if low >= high:
        return None
    whole = knob.kind == "int"
    axis = Axis(name, whole, low, high, log=knob.log)
    found = dict.fromkeys([*values_of(axis, points), value])
    return Axis(name, whole, low, high, values=tuple(sorted(found, key=float)))


def sweep(
    lab: Lab,
    ledger: Ledger,
    lines: Sequence[Line],
    knobs: Mapping[str, KnobRange],
    *,
    repeat: int,
    seed: int,
    pace: Pace,
    events: Events,
) -> None:
    """Every step of every line `repeat` times, into the ledger; ends early when one after the other
    fails."""
    fresh: list[Outcome] = []
    for turn in range(repeat):
        order = _order(lines, seed + turn)
        missing = [step for step in order if not _measured(ledger, step, seed + turn)]
        for config, workload in grouped(missing, knobs):
            events.begin("sweep", dict(config), pace)
            outcome = run_trial(
                lab, dict(config), stage="sweep", seed=seed + turn, workload=workload
            )
            ledger.add(outcome)
            fresh.append(outcome)
            events.done(outcome)
            last = fresh[-FAILURE_LIMIT:]
            if len(last) == FAILURE_LIMIT and all(one.state == "failed" for one in last):
                why = last[-1].failure_reason
                events.note(f"the last {FAILURE_LIMIT} trials failed; sweep ended: {why}")
                return


def count_of(lines: Sequence[Line], repeat: int) -> int:
    """How many measurements a sweep consists of."""
    return len(_order(lines, 0)) * repeat


def configs_of(lines: Sequence[Line]) -> int:
    """How many configurations a sweep visits, whatever the number of loads."""
    found: list[Config] = []
    for line in lines:
        found += [step.config for step in line.steps if step.config not in found]
    return len(found)


def points_of(line: Line, outcomes: Sequence[Outcome], slos: SloSet) -> list[SweepPoint]:
    """In the order of the values."""
    points = []
    for step in line.steps:
        mine = [o for o in outcomes if _same(o, step.config, step.workload)]
        failures = [o.failure_reason for o in mine if o.failure_reason]
        points.append(
            SweepPoint(
                step.value,
                step.config,
                pool(mine, slos),
                failures[-1] if failures else "" if mine else "not measured",
            )
        )
    return points


def _order(lines: Sequence[Line], seed: int) -> list[tuple[Config, Workload]]:
    """Distinct steps, shuffled; the loads of a configuration one after the other."""
    configs: list[Config] = []
    for line in lines:
        configs += [step.config for step in line.steps if step.config not in configs]
    random.Random(seed).shuffle(configs)
    found: list[tuple[Config, Workload]] = []
    for config in configs:
        for line in lines:
            for step in line.steps:
                pair = (step.config, step.workload)
                if step.config == config and pair not in found:
                    found.append(pair)
    return found


def _measured(ledger: Ledger, step: tuple[Config, Workload], seed: int) -> bool:
    return any(_same(o, *step) and o.seed == seed for o in ledger.outcomes)


def _same(outcome: Outcome, config: Config, workload: Workload) -> bool:
    return outcome.config == config and (outcome.workload or workload) == workload


def _forbidden(space: Space, axis: Axis, config: Config) -> str:
    """Why a configuration is none; "" when it may be."""
    seqs, chunk = number_of(config, "max_num_seqs"), number_of(config, "chunk_size")
    if seqs is not None and chunk is not None and chunk < seqs:
        return (
            f"chunk_size ({chunk:g}) must be at least max_num_seqs ({seqs:g}); leave that value "
            "out, or start the server otherwise"
        )
    if axis.condition is not None and not axis.condition.holds(config):
        return f"its condition {axis.condition.text!r} does not hold at the baseline"
    broken = next((c for c in space.constraints if not c.holds(config)), None)
    return f"--constraint {broken.text!r} forbids it" if broken is not None else ""
