"""The page of a sweep: each knob's values against what they gave, and what the knob trades."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from tuner.report.html.page import callout, document, head, panel, pill, section, stacked, table
from tuner.report.html.scale import FAR_BOUND, drawn_end
from tuner.report.html.study_charts import WIDE, figure
from tuner.report.html.study_knobs import knob_at, knob_scale
from tuner.report.html.study_parts import (
    FINDINGS,
    FINDINGS_LEAD,
    findings,
    health,
    provenance,
    timeline,
)
from tuner.report.html.study_plot import Chart, spread
from tuner.report.html.study_tables import cell
from tuner.report.html.svg import BOTTOM, LEFT, RIGHT, TOP
from tuner.report.study_health import measured_checks
from tuner.report.study_points import State
from tuner.report.study_text import not_done
from tuner.report.sweep import (
    best_point,
    best_text,
    own_setting,
    plotted,
    shown_keys,
    trades_of,
    undecided_by,
    why_none,
)
from tuner.report.sweep_study import SweepReport, swept_in
from tuner.report.words import VERDICTS
from tuner.search.axis import is_number
from tuner.search.sweep import Line, SweepPoint
from tuner.slo import Clause
from tuner.targets.base import Setting, setting_text
from tuner.units import count_text, show

MARKS = (
    "Dot: SLOs met at 95 %; ring: undecided; broken ring: missed; cross at the foot: no result. "
    "Upright lines: 95 % intervals; dashed: the setting as it was found."
)
WITHOUT_SLOS = (
    "Dot: measured; cross at the foot: no result. Upright lines: 95 % intervals; dashed: the "
    "setting as it was found."
)

Points = tuple[SweepPoint, ...]


def render_sweep_html(report: SweepReport) -> str:
    body = [
        _head(report),
        callout("warn", [*not_done(report), *_unread(report)]),
        *(_line(report, line, points) for line, points in report.found),
        section(FINDINGS, findings(report, swept_in(report)), FINDINGS_LEAD),
        section("Checks", health(measured_checks(report.outcomes))),
        section("Timeline", timeline(report), "Seconds since the study's first measurement."),
        section("Provenance", provenance(report, [("objective", report.study.objective)])),
    ]  # fmt: skip
    return document(f"slotune · sweep {report.study.name}", body)


def _head(report: SweepReport) -> str:
    study, target = report.study, report.study.target or {}
    named = (f"study {study.name}", study.state, *(target.get(n) for n in ("model", "url")))
    lines = [" · ".join(str(part) for part in named if part), report.load]
    badge = pill("", "swept" if report.found else "nothing swept", big=True)
    return head(report.headline, lines, badge)


def _unread(report: SweepReport) -> list[str]:
    return [report.unread] if report.unread and report.unread != report.headline else []


def _line(report: SweepReport, line: Line, points: Points) -> str:
    name = line.axis.name
    drawn = [
        panel(_chart(report, line, points, key, clause), key, clause.text if clause else "")
        for key, clause in plotted(report.slos, report.objective).items()
    ]
    title = f"{name} under {line.workload}" if len(report.workloads) > 1 else name
    best = best_text(line, points, report.slos, report.objective)
    listed = panel(_table(report, line, points), "", best)
    marks = MARKS if report.slos else WITHOUT_SLOS
    lead = f"It trades: {trades_of(name)}. {marks}"
    return section(title, stacked([*drawn, listed]), lead)


def _chart(report: SweepReport, line: Line, points: Points, key: str, clause: Clause | None) -> str:
    """One figure at each value of the knob, with its interval."""
    width, height = WIDE
    known = [
        found for point in points
        if point.pooled is not None
        and (found := point.pooled.summary.get(key)) is not None and found.measured
    ]  # fmt: skip
    unit = known[0].unit if known else ""
    tops = [drawn_end(e.value, e.high) for e in known if math.isfinite(e.value)]
    values = [*(e.value for e in known), *tops]
    finite = [value for value in values if math.isfinite(value)]
    if clause is not None and finite and clause.bound <= FAR_BOUND * max(finite):
        values.append(clause.bound)
    x = knob_scale(line.axis, [point.value for point in points], LEFT, width - RIGHT)
    y = spread(values, height - BOTTOM, TOP, unit)
    chart = Chart(width, height, x, y, f"{key} against {line.axis.name}")
    chart.grid(x_ticks=8, y_ticks=4)
    if not known:
        chart.note("no data: nothing has a value")
    own = own_setting(line, report.baseline)
    if any(point.value == own for point in points) and own is not None:
        chart.mark_x(knob_at(x, own), "own setting", "base")
    _joined(chart, points, key)
    for point in points:
        _mark(report, chart, point, key, unit)
    if clause is not None:
        chart.mark_y(clause.bound, clause.text, "bound")
    return chart.svg()


def _joined(chart: Chart, points: Points, key: str) -> None:
    """A line through the values of a knob of numbers; words have no between."""
    if not all(is_number(point.value) for point in points):
        return
    pairs = sorted(
        (knob_at(chart.x, point.value), estimate.value)
        for point in points
        if point.pooled is not None and (estimate := point.pooled.summary.get(key)) is not None
        and estimate.measured and math.isfinite(estimate.value)
    )  # fmt: skip
    if len(pairs) > 1:
        chart.line(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]), "faintline")


def _mark(report: SweepReport, chart: Chart, point: SweepPoint, key: str, unit: str) -> None:
    at, label = knob_at(chart.x, point.value), setting_text(point.value)
    estimate = point.pooled.summary.get(key) if point.pooled is not None else None
    if point.pooled is None:
        return chart.no_result(at, f"{label}: {why_none(point)}")
    if estimate is None or not estimate.measured:
        return chart.no_result(at, f"{label}: no data")
    if not math.isfinite(estimate.value):
        return chart.no_result(at, f"{label}: {show(estimate.value, unit)}")
    state: State = point.pooled.verdict.state if report.slos else "pass"
    verdict = f" · SLOs {VERDICTS[state]}" if report.slos else ""
    told = f"{label}: {figure(estimate.value, estimate, unit)}{verdict}"
    chart.whisker(at, estimate.low, estimate.high, "s2")
    chart.mark(at, estimate.value, "s2", told, state)
    return None


def _table(report: SweepReport, line: Line, points: Points) -> str:
    keys, own = shown_keys(report.slos), own_setting(line, report.baseline)
    best = best_point(points, report.objective)
    rows = []
    for point in points:
        label = _label(point.value, own, best is not None and point.value == best.value)
        if point.pooled is None:
            rows.append([label, *("–" for _ in keys), "", escape(why_none(point))])
            continue
        figures = [cell(point.pooled.summary.get(key)) for key in keys]
        state = pill(point.pooled.verdict.state) if report.slos else "–"
        told = [count_text(point.pooled.runs, "run"), *undecided_by(point)]
        rows.append([label, *figures, state, "<br>".join(map(escape, told))])
    header = (line.axis.name, *keys, "SLOs", "")
    return table(header, rows, ("key", *("num" for _ in keys), "", "dim wrap"))


def _label(value: Setting, own: Setting | None, best: bool) -> str:
    notes = [text for text, holds in (("own", value == own), ("best", best)) if holds]
    told = f'<br><span class="dim">{", ".join(notes)}</span>' if notes else ""
    return escape(setting_text(value)) + told
