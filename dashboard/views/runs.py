"""The runs that `tuner bench` and `tuner import` keep: what was measured, and how it was judged.

Also the commands that turn stored runs into pages to hand on; the page itself writes nothing.
"""

from __future__ import annotations

import shlex
import time

import streamlit as st

from dashboard import history, markup
from dashboard.format import duration
from dashboard.history import Point
from dashboard.settings import DEFAULT_DATABASE, current
from dashboard.views import comparison
from storage import Database, Measurement
from storage.location import parse
from tuner.report.runs import list_dict

SHOWN = 20
FIGURES = ("output_tps", "ttft_p95", "error_rate")
EXPORT = "tuner export RUN --format html --output run.html"


def draw(opened: Database, *, expanded: bool) -> None:
    rows = [row for row in opened.list_measurements(stage="bench") if row.study_id is None]
    if not rows:
        return
    newest = rows[::-1][:SHOWN]
    left_out = len(rows) - len(newest)
    head = ["run", "at (UTC)", "took", "target", "workload", *FIGURES, "SLOs and verdict"]
    points = {p.measurement_id: p for p in history.points(rows, history.parse_objective(None))}
    title = f"Runs of tuner bench and tuner import ({len(rows)})"
    with st.expander(title, key="runs", expanded=expanded):
        st.html(markup.table(head, [_row(row, points[row.id]) for row in newest], numeric=(0, 2)))
        if left_out:
            st.html(f'<div class="sub">{left_out} older ones: tuner runs --last 0</div>')
        hint(EXPORT, "One run as a page to hand on:")


def hint(command: str, text: str) -> None:
    """A command to copy; it names the database where that is not the default one."""
    if current().database != DEFAULT_DATABASE:
        shown = parse(current().database).text  # without the password of a server's
        command += f" --database {shlex.quote(shown)}"
    st.html(
        f'<div class="sub">{markup.escape(text)} '
        f'<code class="mono">{markup.escape(command)}</code></div>'
    )


def _row(row: Measurement, point: Point) -> list[str]:
    told = list_dict(row, None)
    imported = told["imported_from"]
    target = str(told["target"]) + (f" (imported, {imported})" if imported else "")
    at = time.gmtime(row.started_at_s)
    figures = [comparison.figure_cell(point.figures.get(name), name) for name in FIGURES]
    return [
        str(row.id),
        f'<span class="nowrap">{time.strftime("%Y-%m-%d %H:%M", at)}</span>',
        "–" if row.duration_s is None else duration(row.duration_s),
        markup.escape(target),
        markup.escape(str(told["workload"] or "–")),
        *figures,
        f"{markup.escape(row.slos or '–')}<br>{verdict_cell(point)}",
    ]


def verdict_cell(point: Point) -> str:
    """The outcome, with what is not met or why there is none."""
    pill = markup.pill(point.outcome, comparison.OUTCOME_TONES[point.outcome])
    return f'{pill} <span class="sub">{markup.escape(point.reason)}</span>'


def compare_hint(study: str) -> None:
    """How a study's answer becomes a page."""
    sides = " ".join(shlex.quote(f"{study}:{side}") for side in ("baseline", "best"))
    hint(f"tuner compare {sides} --html compare.html", "As a page to hand on:")
