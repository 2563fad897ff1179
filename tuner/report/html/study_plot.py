"""What a study's charts need beyond a Plot: axes of words, intervals, bars, cells, marks by stage.

Invariant: as in svg.py, every text is escaped and every number finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from tuner.report.html.scale import LOG_FROM, Floats, Scale
from tuner.report.html.svg import BOTTOM, Plot
from tuner.report.study_points import State

STAGE_LOOKS = {"baseline": "s4", "sweep": "s2", "search": "s1", "confirm": "s3"}
CROSS_PX = 3.5


@dataclass(frozen=True, slots=True)
class Named(Scale):
    """One place for each name: 0, 1, 2, …"""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str], start: float, end: float) -> Named:
        return cls(-0.5, max(len(names), 1) - 0.5, start, end, names=tuple(names))

    def ticks(self, most: int) -> list[float]:
        return [float(place) for place in range(len(self.names))]

    def text(self, value: float) -> str:
        return self.names[round(value)]


def spread(values: Sequence[float], start: float, end: float, unit: str) -> Scale:
    """An axis for the finite values: logarithmic where they span much, else from 0 upwards."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Scale(0.0, 1.0, start, end, unit)
    low, high = min(known), max(known)
    if low > 0 and high > LOG_FROM * low:
        return Scale(low / 1.2, high * 1.2, start, end, unit, log=True)
    bottom = min(0.0, low * 1.05)
    return Scale(bottom, high * 1.08 if high > 0 else 1.0, start, end, unit)


def near(values: Sequence[float], start: float, end: float, unit: str, *, log: bool) -> Scale:
    """An axis around the values with a little room: for a knob, where 0 says nothing."""
    low, high = min(values), max(values)
    if log and low > 0:
        room = max(1.05, (high / low) ** 0.06)
        return Scale(low / room, high * room, start, end, unit, log=True)
    room = 0.06 * (high - low) or abs(low) * 0.1 or 1.0
    return Scale(low - room, high + room, start, end, unit)


class Chart(Plot):
    """A Plot with marks that say in a title what they stand for."""

    def mark(self, x: float, y: float, look: str, title: str, state: State = "pass") -> None:
        """A dot where the SLOs are met at 95 %, a ring where that is open, a broken one where they
        are missed or nothing was measured."""
        kind = {"pass": "dot", "inconclusive": "ring"}.get(state, "ring broken")
        radius = 4 if state == "pass" else 3.4
        self._parts.append(
            f'<circle class="{kind} {look}" cx="{self.x.at(x):.1f}" cy="{self.y.at(y):.1f}" '
            f'r="{radius}"><title>{escape(title)}</title></circle>'
        )

    def whisker(self, x: float, low: float, high: float, look: str) -> None:
        """A vertical interval; an end that is not finite goes to the frame's edge."""
        ends = [_inside(low, self.y.low), _inside(high, self.y.high)]
        a, b = (self.y.at(end) for end in ends)
        at = self.x.at(x)
        self._parts.append(
            f'<line class="spread {look}" x1="{at:.1f}" x2="{at:.1f}" y1="{a:.1f}" y2="{b:.1f}"/>'
        )

    def across(self, y: float, low: float, high: float, look: str) -> None:
        """A horizontal interval."""
        ends = [_inside(low, self.x.low), _inside(high, self.x.high)]
        a, b = (self.x.at(end) for end in ends)
        at = self.y.at(y)
        self._parts.append(
            f'<line class="spread {look}" x1="{a:.1f}" x2="{b:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )

    def no_result(self, x: float, title: str) -> None:
        """A cross at the foot of the frame."""
        at, foot, r = self.x.at(x), self.height - BOTTOM - 8, CROSS_PX
        self._parts.append(
            f'<path class="cross" d="M{at - r:.1f} {foot - r:g}l{2 * r:g} {2 * r:g}'
            f'm0 -{2 * r:g}l-{2 * r:g} {2 * r:g}"><title>{escape(title)}</title></path>'
        )

    def bar(self, low: float, high: float, y: float, half: float, look: str, title: str) -> None:
        """A stretch of x around a place of y; half: its half height, in units of y."""
        self._rect(low, high, y - half, y + half, f"stretch {look}", title)

    def cell(self, x: tuple[float, float], y: tuple[float, float], share: float,
             title: str) -> None:  # fmt: skip
        """A cell of a heat map, the stronger the larger the share (0 to 1)."""
        opacity = f' fill-opacity="{0.08 + 0.72 * min(1.0, max(0.0, share)):.2f}"'
        self._rect(*x, *y, "heat", title, opacity)

    def _rect(
        self, low: float, high: float, bottom: float, top: float, look: str, title: str,
        more: str = "",
    ) -> None:  # fmt: skip
        a, b = sorted((self.x.at(low), self.x.at(high)))
        c, d = sorted((self.y.at(bottom), self.y.at(top)))
        self._parts.append(
            f'<rect class="{look}"{more} x="{a:.1f}" y="{c:.1f}" width="{max(1.0, b - a):.1f}" '
            f'height="{max(1.0, d - c):.1f}"><title>{escape(title)}</title></rect>'
        )


def look_of(stage: str) -> str:
    return STAGE_LOOKS.get(stage, "s1")


def finite(values: Sequence[float | None]) -> Floats:
    """NaN where there is none."""
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def _inside(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
