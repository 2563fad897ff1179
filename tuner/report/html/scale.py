"""Axes: values to pixels, and ticks at round values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.units import show

Floats = npt.NDArray[np.float64]
LOG_FROM = 40.0
"""Values that span more than this ratio are drawn on a logarithmic axis."""

FAR_END = 1.6
"""An interval's end beyond so many times its value is cut off: it would flatten all others."""

FAR_BOUND = 3.0
"""A bound beyond so many times the largest value is left out for the same reason."""

FEW = 2000
"""Of more values than this the axis leaves out the most extreme."""


@dataclass(frozen=True, slots=True)
class Scale:
    """low … high (in unit) onto start … end (pixels)."""

    low: float
    high: float
    start: float
    end: float
    unit: str = ""
    log: bool = False

    def __call__(self, values: Floats | Sequence[float]) -> Floats:
        """Pixels; values outside the domain are put at its edge."""
        inside = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        if self.log:
            inside = np.log(inside)
        low, high = self._ends
        pixels: Floats = self.start + (inside - low) / (high - low) * (self.end - self.start)
        return pixels

    def at(self, value: float) -> float:
        return float(self([value])[0])

    @property
    def _ends(self) -> tuple[float, float]:
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def ticks(self, most: int) -> list[float]:
        """At most about so many round values inside the domain, ascending."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for steps in ((1, 2, 5), (1, 3), (1,)):
                found = [
                    m * 10.0**power
                    for power in range(first, last + 1)
                    for m in steps
                    if self.low <= m * 10.0**power <= self.high
                ]
                if len(found) <= most:
                    break
            return found[:: max(1, math.ceil(len(found) / most))]
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return [(first + i) * step for i in range(count)]

    def text(self, value: float) -> str:
        """A tick's label with its unit."""
        if value == 0:
            return "0"
        if self.unit == "s":
            return show(value, "s")
        if self.unit == "share":
            return f"{value * 100:g} %"
        return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def fitted(values: Floats, start: float, end: float, unit: str, *, zero: bool = True) -> Scale:
    """A linear axis from 0 (or the least) to a little above the greatest finite value."""
    known = values[np.isfinite(values)]
    high = float(known.max()) if len(known) else 1.0
    low = 0.0 if zero or not len(known) else float(known.min())
    if high <= low:
        high = low + (abs(low) or 1.0)
    return Scale(low, high + 0.05 * (high - low), start, end, unit)


def drawn_end(value: float, high: float) -> float:
    """As far up as an axis goes for an interval."""
    return min(high, FAR_END * value)


def latency_axis(values: Floats, bounds: Sequence[float], start: float, end: float) -> Scale:
    """Seconds; logarithmic where they span much. A bound is on it unless it is far away."""
    known = values[np.isfinite(values) & (values > 0)]
    if not len(known):
        known = np.array([b for b in bounds if b > 0] or [1.0])
    ends = [0.0, 1.0] if len(known) < FEW else [0.005, 0.9995]
    low, high = (float(value) for value in np.quantile(known, ends))
    near = [bound for bound in bounds if low / FAR_BOUND <= bound <= high * FAR_BOUND]
    low, high = min([low, *near]), max([high, *near])
    if high > LOG_FROM * low:
        return Scale(low / 1.15, high * 1.15, start, end, "s", log=True)
    span = high - low or high
    wide = low - 0.08 * span
    return Scale(0.0 if wide < 0.25 * high else wide, high + 0.08 * span, start, end, "s")


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * (1 - 1e-9))
