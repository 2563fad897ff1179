"""What a sweep gave: of each knob under each load its values with their figures, drawn and listed.

The tuner's own reading of the study (`tuner report` prints the same); the page only lays it out.
"""

from __future__ import annotations

import streamlit as st

from dashboard import charts, markup
from dashboard.chart_intervals import CUT_OFF
from dashboard.history import Estimate
from dashboard.views.comparison import OUTCOME_TONES, figure_cell
from storage import Database, Study
from tuner.errors import UserError
from tuner.exchange.bundle import of_database
from tuner.report.recorded import is_sweep
from tuner.report.sweep import (
    best_text,
    own_setting,
    plotted,
    shown_keys,
    trades_of,
    undecided_by,
    verdict_of,
    why_none,
)
from tuner.report.sweep_study import SweepReport, sweep_report
from tuner.search.sweep import Line, SweepPoint
from tuner.stats import Estimate as Figure
from tuner.targets.base import setting_text

Points = tuple[SweepPoint, ...]


def report_of(opened: Database, study: Study, measured: int) -> SweepReport | None:
    """measured: how many measurements it has; None for a study that is no sweep, or that this
    version cannot read."""
    if not is_sweep(study):
        return None
    return _report(opened, study.name, (study.id, study.updated_at_s, measured))


@st.cache_resource(show_spinner=False, max_entries=4)
def _report(_opened: Database, name: str, _as_of: tuple[int, float, int]) -> SweepReport | None:
    try:
        return sweep_report(of_database(_opened, name))
    except UserError:
        return None


def draw(report: SweepReport) -> None:
    st.html(
        markup.heading(
            report.headline, f"95 % intervals, {CUT_OFF}; n: samples; (own): as it was found"
        )
    )
    for place, (line, points) in enumerate(report.found):
        _line(report, line, points, place)


def _line(report: SweepReport, line: Line, points: Points, place: int) -> None:
    name = line.axis.name
    under = f" under {line.workload}" if len(report.workloads) > 1 else ""
    st.html(markup.heading(f"{name}{under}", f"it trades: {trades_of(name)}"))
    own = own_setting(line, report.baseline)
    labels = [_label(point, own) for point in points]
    for key, clause in plotted(report.slos, report.objective).items():
        figures = [_estimate(point, key) for point in points]
        drawn = charts.sweep(
            name, labels, figures, key, None if clause is None else (clause.bound, clause.text)
        )
        if drawn is not None:
            with st.container(border=True, key=f"panel-sweep-{place}-{key}"):
                st.altair_chart(drawn, width="stretch", key=f"sweep-{place}-{key}")
    keys = shown_keys(report.slos)
    rows = [_row(report, point, label, keys) for point, label in zip(points, labels, strict=True)]
    st.html(markup.table([name, *keys, "SLOs"], rows))
    best = best_text(line, points, report.slos, report.objective)
    st.html(f'<div class="sub">{markup.escape(best)}</div>' if best else "")


def _label(point: SweepPoint, own: object) -> str:
    return setting_text(point.value) + (" (own)" if point.value == own else "")


def _row(report: SweepReport, point: SweepPoint, label: str, keys: list[str]) -> list[str]:
    if point.pooled is None:
        reason = f'<span class="sub">{markup.escape(why_none(point))}</span>'
        return [markup.escape(label), *("–" for _ in keys), reason]
    word = verdict_of(point, report.slos)
    judged = markup.pill(word, OUTCOME_TONES[word]) if word in OUTCOME_TONES else word
    why = "; ".join(undecided_by(point))
    judged += f' <span class="sub">{markup.escape(why)}</span>' if why else ""
    return [
        markup.escape(label), *(figure_cell(_estimate(point, key), key) for key in keys), judged,
    ]  # fmt: skip


def _estimate(point: SweepPoint, key: str) -> Estimate:
    """Without a value where nothing was measured."""
    found: Figure | None = point.pooled.summary.get(key) if point.pooled else None
    if found is None or not found.measured:
        return Estimate(None)
    unit = {"share": "ratio"}.get(found.unit, found.unit)
    return Estimate(found.value, found.low, found.high, found.n, unit)
