"""One searched knob: its values, and where each lies in [0, 1].

Invariant: an axis has finitely many settings, and decode(encode(setting)) is that setting; steps
finer than a measurement can tell apart are not among them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tuner.search.expressions import Expression
from tuner.targets.base import Setting, setting_text

_SHARE_STEPS = 8
"""Shares of memory are tried in about as many steps: finer ones cannot be told apart."""

_COARSE_FROM = 32
"""Token and sequence counts above this are rounded to about 6 %: finer steps only repeat points."""


@dataclass(frozen=True, slots=True)
class Axis:
    """values when they were listed (numbers ascending, words as given), else the range [low, high].

    condition: where it does not hold the knob keeps the baseline's setting.
    own: the baseline's setting, in the place of the step of a range that is nearest to it, so that
    a knob which does not matter can be left as it is.
    """

    name: str
    whole: bool
    low: float
    high: float
    log: bool = False
    values: tuple[Setting, ...] = ()
    condition: Expression | None = None
    own: Setting | None = None

    def __str__(self) -> str:
        """The --knob text that gives this axis."""
        where = f" if {self.condition.text}" if self.condition is not None else ""
        if self.values:
            return f"{self.name}={','.join(map(setting_text, self.values))}{where}"
        scale = ":log" if self.log else ":lin"
        return f"{self.name}={self.low:g}:{self.high:g}{scale}{where}"

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All of them: numbers ascending."""
        return self.values or _grid(self.low, self.high, self.whole, self.own_step)

    @property
    def own_step(self) -> float | None:
        """The baseline's setting where it is a step of this range."""
        if self.own is None or not is_number(self.own):
            return None
        return float(self.own) if self.low < float(self.own) < self.high else None

    def decode(self, unit: float, among: Sequence[Setting] = ()) -> Setting:
        """The setting at a position in [0, 1]; among: those that are allowed, in the axis's order,
        over which [0, 1] then runs."""
        allowed = among or self.settings
        if self.values:
            return allowed[min(len(allowed) - 1, int(unit * len(allowed)))]
        low, high = _as_float(allowed[0]), _as_float(allowed[-1])
        if self.log:
            value = math.exp(math.log(low) + unit * math.log(high / low))
        else:
            value = low + unit * (high - low)
        return allowed[_nearest(allowed, value)]

    def encode(self, value: Setting, among: Sequence[Setting] = ()) -> float:
        """The position of a setting; outside the axis its nearest end, the middle for a word that
        is not on it."""
        allowed = among or self.settings
        if self.values:
            return (_place(allowed, value) + 0.5) / len(allowed)
        low, high = _as_float(allowed[0]), _as_float(allowed[-1])
        if isinstance(value, str):
            return 0.5
        if high <= low:
            return 0.0
        number = min(max(float(value), low), high)
        if self.log:
            return math.log(number / low) / math.log(high / low)
        return (number - low) / (high - low)


def _place(allowed: Sequence[Setting], value: Setting) -> int:
    """Index of a setting, or of the nearest number; the middle for a word that is not there."""
    for index, known in enumerate(allowed):
        if known == value and isinstance(known, bool) == isinstance(value, bool):
            return index
    numbers = [known for known in allowed if not isinstance(known, (str, bool))]
    if isinstance(value, (str, bool)) or not numbers:
        return len(allowed) // 2
    nearest = min(numbers, key=lambda known: abs(known - value))
    return list(allowed).index(nearest)


def _nearest(ascending: Sequence[Setting], value: float) -> int:
    index = bisect_left(ascending, value, key=_as_float)
    if index == 0:
        return 0
    if index == len(ascending):
        return index - 1
    below, above = _as_float(ascending[index - 1]), _as_float(ascending[index])
    return index if above - value < value - below else index - 1


def _as_float(value: Setting) -> float:
    return float(value)


@lru_cache(maxsize=64)
def _grid(low: float, high: float, whole: bool, own: float | None) -> tuple[Setting, ...]:
    """The settings of a range, both ends included, and own in the place of the nearest other."""
    steps = _whole_steps(low, high) if whole else _shares(low, high)
    if own is None or own in steps:
        return steps
    nearest = _nearest(steps, own)
    kept = [step for at, step in enumerate(steps) if at != nearest or at in (0, len(steps) - 1)]
    return tuple(sorted([*kept, int(own) if whole else own], key=_as_float))


def _shares(low: float, high: float) -> tuple[Setting, ...]:
    step = max(0.01, round((high - low) / _SHARE_STEPS, 2))
    count = int((high - low) / step + 1e-9)
    return tuple(dict.fromkeys([*(round(low + i * step, 3) for i in range(count + 1)), high]))


def _whole_steps(low: float, high: float) -> tuple[Setting, ...]:
    first, last = math.ceil(low), math.floor(high)
    found, value = [first], first
    while value < last:
        step_size = 1 if value < _COARSE_FROM else 2 ** (value.bit_length() - 5)
        value = min((value // step_size + 1) * step_size, last)
        found.append(value)
    return tuple(found)


def is_number(value: Setting) -> bool:
    """Whether a setting can be calculated with; true and false cannot."""
    return not isinstance(value, (str, bool))
