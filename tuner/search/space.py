"""The search space: knobs with values or ranges inside what the target allows.

Each knob is searched as a number in [0, 1] and decoded in the knob table's order, so that a
constraint between knobs (chunk_size ≥ max_num_seqs) shapes the later knob's range: no point of the
cube is ever infeasible, and no trial is wasted on a configuration the engine would refuse.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.knobs import KNOB_ALIASES, KNOBS, LIVE_KNOBS
from tuner.errors import UserError
from tuner.targets.base import KnobRange, Setting
from tuner.workload import Workload

_RANGE = re.compile(r"(.+?)(?:\.\.|:)([^:]+?)(:log|:lin)?$")
_SHARE_STEPS = 8
"""Shares of memory are tried in about as many steps: finer ones cannot be told apart."""

_COARSE_FROM = 32
"""Token and sequence counts above this are rounded to about 6 %: finer steps only repeat points."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob: values when they were listed (ascending), else the range [low, high]."""

    name: str
    whole: bool
    low: float
    high: float
    log: bool = False
    values: tuple[Setting, ...] = ()

    def __str__(self) -> str:
        if self.values:
            return f"{self.name}={','.join(f'{value:g}' for value in self.values)}"
        return f"{self.name}={self.low:g}:{self.high:g}{':log' if self.log else ':lin'}"

    def at_least(self, floor: float) -> Axis:
        """The part of the axis from floor up."""
        kept = tuple(value for value in self.values if value >= floor)
        low = min(max(self.low, floor), self.high)
        return Axis(self.name, self.whole, low, self.high, self.log, kept or self.values[-1:])

    def decode(self, unit: float) -> Setting:
        """The setting at a position in [0, 1]."""
        if self.values:
            return self.values[min(len(self.values) - 1, int(unit * len(self.values)))]
        if self.log:
            value = math.exp(math.log(self.low) + unit * math.log(self.high / self.low))
        else:
            value = self.low + unit * (self.high - self.low)
        return self._rounded(value)

    def encode(self, value: float) -> float:
        """The position of a setting; outside the axis, its nearest end."""
        if self.values:
            gaps = [abs(value - known) for known in self.values]
            return (gaps.index(min(gaps)) + 0.5) / len(self.values)
        if self.high <= self.low:
            return 0.0
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def _rounded(self, value: float) -> Setting:
        if not self.whole:
            step = max(0.01, round((self.high - self.low) / _SHARE_STEPS, 2))
            nearest = self.low + round((value - self.low) / step) * step
            return float(min(max(round(nearest, 3), self.low), self.high))
        step = 1 if value < _COARSE_FROM else 2 ** max(0, math.floor(math.log2(value)) - 4)
        return int(min(max(round(value / step) * step, math.ceil(self.low)), math.floor(self.high)))


@dataclass(frozen=True, slots=True)
class Space:
    """Axes in decoding order: max_num_seqs before chunk_size."""

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Setting]
    """Values of the knobs that are not searched, as the baseline has them."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def decode(self, units: Mapping[str, float]) -> dict[str, Setting]:
        """A full, feasible configuration."""
        config = dict(self.fixed)
        for axis in self.axes:
            config[axis.name] = self._allowed(axis, config).decode(units[axis.name])
        return {name: config[name] for name in sorted(config, key=_table_order)}

    def encode(self, config: Mapping[str, Setting]) -> dict[str, float]:
        return {
            axis.name: self._allowed(axis, config).encode(config[axis.name]) for axis in self.axes
        }

    def as_dict(self) -> dict[str, Any]:
        return {"axes": [str(axis) for axis in self.axes], "fixed": dict(self.fixed)}

    def _allowed(self, axis: Axis, config: Mapping[str, Setting]) -> Axis:
        if axis.name == "chunk_size" and "max_num_seqs" in config:
            return axis.at_least(config["max_num_seqs"])
        return axis


def joint_space(
    knobs: Mapping[str, KnobRange],
    texts: Sequence[str] = (),
    useful: Mapping[str, float] | None = None,
) -> Space:
    """The space of --knob texts; without any, the default knobs in the target's bounds.

    useful: see useful_limits; it caps default ranges only. Raises UserError.
    """
    if not knobs:
        raise UserError(
            "this server offers no knob the tuner can turn; start slotune's engine with "
            "--enable-admin, or let the tuner start the server (--target vllm)"
        )
    axes = [parse_axis(text, knobs) for text in texts] or _default_axes(knobs, useful or {})
    names = [axis.name for axis in axes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"--knob {min(twice)} is given twice; list all its values once")
    fixed = {name: knob.value for name, knob in knobs.items() if name not in names}
    return _linked(axes, fixed)


def parse_axis(text: str, knobs: Mapping[str, KnobRange]) -> Axis:
    """`name=10,20,40`, `name=8:256[:log]` or `name=0.7..0.95`, inside the target's bounds."""
    name, equals, values = (part.strip() for part in text.partition("="))
    name = KNOB_ALIASES.get(name.replace("-", "_"), name.replace("-", "_"))
    if name not in knobs:
        check_names([name])
        raise UserError(
            f"--knob {name}: this server cannot change it; it can change {', '.join(knobs)}"
        )
    if not equals or not values:
        raise UserError(f"--knob {text!r}: no values; write {name}=8,16,32 or {name}=8:256:log")
    whole = KNOBS[name].kind == "int"
    found = _RANGE.match(values)
    if found is None:
        listed = sorted({_number(part, name, whole) for part in values.split(",")})
        axis = Axis(name, whole, listed[0], listed[-1], values=tuple(listed))
    else:
        low, high, scale = found.groups()
        ends = [_number(part, name, whole) for part in (low, high)]
        if ends[0] >= ends[1]:
            raise UserError(f"--knob {text!r}: the range must run from low to high")
        log = scale == ":log" or (scale is None and KNOBS[name].log)
        if log and ends[0] <= 0:
            raise UserError(f"--knob {text!r}: a log range must start above 0")
        axis = Axis(name, whole, ends[0], ends[1], log)
    _check_bounds(axis, knobs[name])
    return axis


def check_names(texts: Sequence[str]) -> None:
    """UserError for a knob that no target has; needs no running server."""
    for text in texts:
        name = text.partition("=")[0].strip().replace("-", "_")
        if KNOB_ALIASES.get(name, name) not in KNOBS:
            close = difflib.get_close_matches(name, [*KNOBS, *KNOB_ALIASES], n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(KNOBS)}"
            raise UserError(f"--knob {name}: unknown knob; {hint}")


def useful_limits(workload: Workload) -> dict[str, float]:
    """Values above which a knob cannot matter under a closed loop: more sequences than clients
    never run, and more tokens than all clients' prompts are never in one step."""
    if not workload.arrivals.closed:
        return {}
    clients = workload.arrivals.level
    limits = {"max_num_seqs": clients}
    longest = {"fixed": workload.prompt.a, "uniform": workload.prompt.b}.get(workload.prompt.kind)
    if longest is not None:
        limits["chunk_size"] = clients * longest
    return limits


def _default_axes(knobs: Mapping[str, KnobRange], useful: Mapping[str, float]) -> list[Axis]:
    axes = []
    for name in LIVE_KNOBS:
        if name not in knobs:
            continue
        knob, bounds = KNOBS[name], knobs[name]
        low, high = float(knob.low or 0), min(float(knob.high or math.inf), bounds.high)
        if name in useful:
            high = min(high, useful[name])
            low = min(low, float(math.ceil(high / 8)))
        low = max(low, bounds.low)
        if low < high:
            axes.append(Axis(name, knob.kind == "int", low, high, knob.log))
    return axes


def _linked(axes: Sequence[Axis], fixed: Mapping[str, Setting]) -> Space:
    """Order the axes and rule out what chunk_size ≥ max_num_seqs forbids."""
    ordered = sorted(axes, key=lambda axis: _table_order(axis.name))
    by_name = {axis.name: axis for axis in ordered}
    seqs, chunk = by_name.get("max_num_seqs"), by_name.get("chunk_size")
    top = chunk.high if chunk is not None else float(fixed.get("chunk_size", math.inf))
    floor = seqs.low if seqs is not None else float(fixed.get("max_num_seqs", 0))
    if top < floor:
        raise UserError(
            f"chunk_size ({top:g}) must be at least max_num_seqs ({floor:g}): every running "
            "sequence needs one token of the step; widen --knob chunk_size or lower max_num_seqs"
        )
    if seqs is not None and seqs.high > top:
        kept = tuple(value for value in seqs.values if value <= top)
        by_name["max_num_seqs"] = Axis(seqs.name, seqs.whole, seqs.low, top, seqs.log, kept)
    return Space(tuple(by_name[axis.name] for axis in ordered), dict(fixed))


def _table_order(name: str) -> int:
    """Position in the table of knobs, where max_num_seqs stands before chunk_size."""
    return list(KNOBS).index(name)


def _number(text: str, name: str, whole: bool) -> Setting:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"--knob {name}: {text.strip()!r} is no number") from None
    if not math.isfinite(value) or (whole and value != int(value)):
        kind = "a whole number" if whole else "a finite number"
        raise UserError(f"--knob {name}: {text.strip()} is not {kind}")
    return int(value) if whole else value


def _check_bounds(axis: Axis, bounds: KnobRange) -> None:
    for value in (axis.low, axis.high):
        if not bounds.low <= value <= bounds.high:
            raise UserError(
                f"--knob {axis.name}: {value:g} is outside {bounds.low:g} to {bounds.high:g}, "
                "what this server allows"
            )
