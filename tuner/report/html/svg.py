"""One chart as inline SVG: axes, steps, bands, marks. Colours are classes of the page's style.

Invariant: every text is escaped, every number finite; the drawing says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from tuner.report.html.scale import Scale

Floats = npt.NDArray[np.float64]
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 24


class Plot:
    """width × height pixels; x and y map values into the frame inside the margins."""

    def __init__(self, width: int, height: int, x: Scale, y: Scale, label: str) -> None:
        self.width, self.height, self.x, self.y = width, height, x, y
        self._label = label
        self._parts: list[str] = []

    def grid(self, x_ticks: int = 6, y_ticks: int = 4) -> None:
        left, right, top, bottom = LEFT, self.width - RIGHT, TOP, self.height - BOTTOM
        for value in self.y.ticks(y_ticks):
            at = self.y.at(value)
            self._parts.append(f'<line class="grid" x1="{left}" x2="{right}" {_ys(at)}/>')
            self._text(left - 6, at + 3.5, self.y.text(value), "end")
        for value in self.x.ticks(x_ticks):
            at = self.x.at(value)
            self._parts.append(f'<line class="grid" {_xs(at)} y1="{top}" y2="{bottom}"/>')
            self._text(at, bottom + 15, self.x.text(value), "middle")
        self._parts.append(
            f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'
        )  # fmt: skip

    def line(self, xs: Floats, ys: Floats, look: str, title: str = "") -> None:
        """Broken where a value is missing."""
        self._path(_moves(self.x(xs), self.y(ys), np.isfinite(xs) & np.isfinite(ys)), look, title)

    def step(self, xs: Floats, ys: Floats, look: str, title: str = "") -> None:
        """Level ys[i] from xs[i] on."""
        self.line(np.repeat(xs, 2)[1:], np.repeat(ys, 2)[:-1], look, title)

    def area(self, xs: Floats, low: Floats, high: Floats, look: str) -> None:
        known = np.isfinite(low) & np.isfinite(high)
        if known.sum() < 2:
            return
        xs, low, high = xs[known], low[known], high[known]
        px, up, down = self.x(xs), self.y(high), self.y(low)
        there = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, up, strict=True))
        back = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px[::-1], down[::-1], strict=True))
        self._parts.append(f'<polygon class="{look}" points="{there} {back}"/>')

    def dots(self, xs: Floats, ys: Floats, look: str, radius: float = 1.6) -> None:
        """All in one path, so that thousands stay small."""
        marks = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(self.x(xs), self.y(ys), strict=True))
        if marks:
            self._parts.append(
                f'<path class="dots {look}" stroke-width="{2 * radius:g}" d="{marks}"/>'
            )

    def crosses(self, xs: Floats, at_px: float, look: str) -> None:
        """Marks without a value, at one height."""
        marks = "".join(f"M{a - 3:.1f} {at_px - 3:g}l6 6m0 -6l-6 6" for a in self.x(xs))
        if marks:
            self._parts.append(f'<path class="{look}" d="{marks}"/>')

    def point(self, x: float, y: float, look: str, title: str) -> None:
        self._parts.append(
            f'<circle class="{look}" cx="{self.x.at(x):.1f}" cy="{self.y.at(y):.1f}" r="4">'
            f"<title>{escape(title)}</title></circle>"
        )

    def mark_x(self, value: float, text: str, look: str) -> None:
        """A vertical line, its text at its foot; beyond the frame only the text, at the edge."""
        at = self.x.at(value)
        inside = self.x.low <= value <= self.x.high
        if inside:
            self._parts.append(
                f'<line class="{look}" {_xs(at)} y1="{TOP}" y2="{self.height - BOTTOM}"/>'
            )
        right = at > self.width - RIGHT - 6.5 * len(text)  # no room on the right side of the line
        arrow = "" if inside else " →" if value > self.x.high else "← "
        shown = f"{arrow}{text}" if arrow.startswith("←") else f"{text}{arrow}"
        self._text(
            at + (-5 if right else 5), self.height - BOTTOM - 7, shown,
            "end" if right else "start", look,
        )  # fmt: skip

    def mark_y(self, value: float, text: str, look: str) -> None:
        if not self.y.low <= value <= self.y.high:
            return
        at = self.y.at(value)
        self._parts.append(
            f'<line class="{look}" x1="{LEFT}" x2="{self.width - RIGHT}" {_ys(at)}/>'
        )
        self._text(self.width - RIGHT - 4, at - 4, text, "end", look)

    def shade(self, low: float, high: float, text: str) -> None:
        """A stretch of x that does not count."""
        a, b = self.x.at(low), self.x.at(high)
        if b - a < 0.5:
            return
        height = self.height - TOP - BOTTOM
        self._parts.append(
            f'<rect class="shade" x="{a:.1f}" y="{TOP}" width="{b - a:.1f}" height="{height}">'
            f"<title>{escape(text)}</title></rect>"
        )
        if b - a > 7 * len(text):
            self._text((a + b) / 2, TOP + 11, text, "middle", "faint")

    def note(self, text: str) -> None:
        """In the middle of an empty frame."""
        self._text(self.width / 2, self.height / 2, text, "middle", "faint")

    def svg(self) -> str:
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self._label, quote=True)}">{"".join(self._parts)}</svg>'
        )

    def _path(self, moves: str, look: str, title: str) -> None:
        if moves:
            told = f"<title>{escape(title)}</title>" if title else ""
            self._parts.append(f'<path class="line {look}" d="{moves}">{told}</path>')

    def _text(self, x: float, y: float, text: str, anchor: str, look: str = "") -> None:
        self._parts.append(
            f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )


def bars(parts: Sequence[tuple[float, str, str]], whole: float, width: int = 260) -> str:
    """A stacked bar: (amount, class, what it is) one after the other; whole fills the width."""
    at, drawn = 0.0, []
    for amount, look, what in parts:
        length = max(0.0, amount / whole * width) if whole > 0 else 0.0
        if length > 0:
            drawn.append(
                f'<rect class="{look}" x="{at:.1f}" y="2" width="{max(length, 0.8):.1f}" '
                f'height="10"><title>{escape(what)}</title></rect>'
            )
        at += length
    return f'<svg class="bar" viewBox="0 0 {width} 14" aria-hidden="true">{"".join(drawn)}</svg>'


def _moves(px: Floats, py: Floats, known: npt.NDArray[np.bool_]) -> str:
    parts, pen = [], "M"
    for a, b, fine in zip(px, py, known, strict=True):
        if fine:
            parts.append(f"{pen}{a:.1f} {b:.1f}")
        pen = "L" if fine else "M"
    return "".join(parts)


def _xs(at: float) -> str:
    return f'x1="{at:.1f}" x2="{at:.1f}"'


def _ys(at: float) -> str:
    return f'y1="{at:.1f}" y2="{at:.1f}"'
