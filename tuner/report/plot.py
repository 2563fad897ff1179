"""Plots of a terminal: a bar per value, its interval, and the bound it should keep to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.stats import Estimate
from tuner.units import show

WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Bar:
    """estimate None: nothing was measured, and note says why."""

    label: str
    estimate: Estimate | None
    note: str = ""


def plot_lines(title: str, bars: Sequence[Bar], bound: float | None = None) -> list[str]:
    """One line per bar, all on one scale from 0; `┊` marks the bound. [] with nothing to draw.

    `─` reaches from a bar's end to the end of its interval, where that lies on the scale.
    """
    known = [bar.estimate for bar in bars if bar.estimate is not None and bar.estimate.measured]
    values = [e.value for e in known if math.isfinite(e.value)]
    if not values:
        return []
    ends = [e.high for e in known if math.isfinite(e.high)]
    top = max([*values, min(max(ends, default=0.0), 1.5 * max(values)), bound or 0.0]) or 1.0
    if bound is not None and 0 < 4 * max(values) < bound:  # far away: it would flatten every bar
        top, bound = max(values), None
    label_width = max(len(bar.label) for bar in bars)
    lines = [title]
    for bar in bars:
        drawn = _drawn(bar.estimate, top, bound)
        lines.append(f"  {bar.label:>{label_width}} {drawn} {_figure(bar)}".rstrip())
    return lines


def _figure(bar: Bar) -> str:
    if bar.estimate is None or not bar.estimate.measured:
        return bar.note or "no data"
    return show(bar.estimate.value, bar.estimate.unit)


def _drawn(estimate: Estimate | None, top: float, bound: float | None) -> str:
    cells = [" "] * WIDTH
    if estimate is not None and estimate.measured:
        filled = min(1.0, estimate.value / top) * WIDTH if math.isfinite(estimate.value) else WIDTH
        whole, part = int(filled), int((filled % 1) * 8)
        cells[:whole] = ["█"] * whole
        if part and whole < WIDTH:
            cells[whole] = _EIGHTHS[part]
        high = estimate.high if math.isfinite(estimate.high) else top
        reach = min(WIDTH, math.ceil(min(1.0, high / top) * WIDTH))
        for index in range(whole + (part > 0), reach):
            cells[index] = "─"
    if bound is not None:
        cells[min(WIDTH - 1, int(bound / top * WIDTH))] = "┊"
    return "".join(cells)
