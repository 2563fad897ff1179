"""What each knob does: slices through the measurements, and two knobs together as a heat map.

They show every measurement, each with the other knobs as they happened to be: they suggest, and
only the importances and the confirmation say how sure that is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.report.html.scale import Scale
from tuner.report.html.study_charts import title_of
from tuner.report.html.study_plot import Chart, Named, look_of, near, spread
from tuner.report.html.svg import BOTTOM, LEFT, RIGHT, TOP
from tuner.report.study import StudyReport
from tuner.report.study_points import Point
from tuner.search.axis import Axis, is_number
from tuner.targets.base import Setting, setting_text
from tuner.units import show

PANEL = (470, 230)
SQUARE = (980, 330)
MOST_CELLS = 7
WORDS_FROM = 9
"""A knob with fewer listed values than this gets a place for each."""


def slice_of(report: StudyReport, axis: Axis, *, margins: bool) -> str:
    """The first objective, or the worst SLO figure over its bound, against one knob."""
    width, height = PANEL
    key = "worst figure over its SLO bound" if margins else report.goal.objectives[0].key
    drawn = [p for p in report.points if axis.name in p.trial.config]
    x = knob_scale(axis, [p.trial.config[axis.name] for p in drawn], LEFT, width - RIGHT)
    values = {p.number: _margin(p) if margins else p.value for p in drawn}
    known = [v for v in values.values() if v is not None and math.isfinite(v)]
    unit = "" if margins else report.unit(0)
    y = spread([*known, 1.0] if margins else known, height - BOTTOM, TOP, unit)
    chart = Chart(width, height, x, y, f"{key} against {axis.name}")
    chart.grid(x_ticks=5, y_ticks=4)
    if not known:
        chart.note("no data: nothing has a value")
    for point in drawn:
        at, value = knob_at(x, point.trial.config[axis.name]), values[point.number]
        if value is None or not math.isfinite(value):
            chart.no_result(at, f"{point.number} {title_of(point)}")
            continue
        shown = f"{value:.2f} × its bound" if margins else show(value, unit)
        told = f"{point.number} {title_of(point)}: {shown}"
        chart.mark(at, value, look_of(point.trial.stage), told, point.state)
    if margins:
        chart.mark_y(1.0, "", "bound")
    return chart.svg()


def _margin(point: Point) -> float | None:
    worst = point.worst_margin
    return None if worst is None else math.exp(worst)


def knob_scale(axis: Axis, seen: Sequence[Setting], start: float, end: float) -> Scale:
    """Numbers on their own axis; words, switches and a few listed numbers one after the other."""
    listed = [*dict.fromkeys([*axis.values, *seen])] if axis.values else list(dict.fromkeys(seen))
    numbers = [float(value) for value in listed if is_number(value)]
    if len(numbers) < len(listed) or (axis.values and len(listed) < WORDS_FROM):
        ordered = [*sorted(v for v in listed if is_number(v)),
                   *(v for v in listed if not is_number(v))]  # fmt: skip
        return Named.of([setting_text(value) for value in ordered], start, end)
    if not axis.values:
        numbers += [axis.low, axis.high]
    return near(numbers or [0.0, 1.0], start, end, "", log=axis.log)


def knob_at(scale: Scale, value: Setting) -> float:
    if isinstance(scale, Named):
        return float(scale.names.index(setting_text(value)))
    return float(value)


def heat(report: StudyReport, across: Axis, up: Axis) -> str:
    """Mean of the first objective in cells of two knobs; empty where nothing was measured."""
    width, height = SQUARE
    drawn = [p for p in report.points if {across.name, up.name} <= set(p.trial.config)]
    x = knob_scale(across, [p.trial.config[across.name] for p in drawn], LEFT, width - RIGHT)
    y = knob_scale(up, [p.trial.config[up.name] for p in drawn], height - BOTTOM, TOP)
    objective, unit = report.goal.objectives[0], report.unit(0)
    chart = Chart(width, height, x, y, f"{objective.key} over {across.name} and {up.name}")
    at = {p.number: (knob_at(x, p.trial.config[across.name]),
                     knob_at(y, p.trial.config[up.name])) for p in drawn}  # fmt: skip
    cells: dict[tuple[int, int], list[float]] = {}
    columns, rows = _edges(x), _edges(y)
    for point in drawn:
        if point.value is not None and math.isfinite(point.value):
            a, b = at[point.number]
            cells.setdefault((_cell(columns, a), _cell(rows, b)), []).append(point.value)
    means = {cell: sum(values) / len(values) for cell, values in cells.items()}
    low, high = (min(means.values()), max(means.values())) if means else (0.0, 1.0)
    chart.grid(x_ticks=8, y_ticks=5)
    for (i, j), mean in means.items():
        share = (mean - low) / (high - low) if high > low else 1.0
        told = f"mean {show(mean, unit)} of {len(cells[i, j])}"
        chart.cell((columns[i], columns[i + 1]), (rows[j], rows[j + 1]), share, told)
    for point in drawn:
        a, b = at[point.number]
        if point.value is None:
            chart.mark(a, b, "sbad", f"{point.number} {title_of(point)}", "none")
            continue
        told = f"{point.number} {title_of(point)}: {show(point.value, unit)}"
        chart.mark(a, b, look_of(point.trial.stage), told, point.state)
    return chart.svg()


def heat_range(report: StudyReport) -> str:
    values = [p.value for p in report.points if p.value is not None and math.isfinite(p.value)]
    if not values:
        return "no data: nothing has a value"
    unit = report.unit(0)
    return f"mean of each cell: pale {show(min(values), unit)}, strong {show(max(values), unit)}"


def _edges(scale: Scale) -> list[float]:
    """Ends of the cells, in the axis's own unit, equally wide on the page."""
    if isinstance(scale, Named):
        return [place - 0.5 for place in range(len(scale.names) + 1)]
    if scale.log:
        return [float(v) for v in np.geomspace(scale.low, scale.high, MOST_CELLS + 1)]
    return [float(v) for v in np.linspace(scale.low, scale.high, MOST_CELLS + 1)]


def _cell(edges: Sequence[float], value: float) -> int:
    return int(np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2))
