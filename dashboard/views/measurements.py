"""The measurements of a study one by one: those without a result first, then all."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from dashboard import markup
from dashboard.format import duration
from dashboard.history import Objective, Point
from dashboard.views import comparison, runs


def draw(found: Sequence[Point], objective: Objective) -> None:
    _without_result(found)
    _all_measurements(found, objective)


def _without_result(found: Sequence[Point]) -> None:
    failed = [point for point in found if point.objective.value is None]
    if not failed:
        return
    st.html(markup.heading("Without a result", "never scored; each with its reason"))
    rows = [
        [
            str(point.order),
            point.stage,
            comparison.config_cell(point.config),
            markup.pill(point.drawn_as, comparison.OUTCOME_TONES[point.drawn_as]),
            markup.escape(point.reason),
        ]
        for point in failed
    ]
    st.html(markup.table(["#", "stage", "configuration", "state", "reason"], rows, numeric=(0,)))


def _all_measurements(found: Sequence[Point], objective: Objective) -> None:
    title = "The measurement" if len(found) == 1 else f"All {len(found)} measurements"
    with st.expander(title, key="all-measurements"):
        several = len({point.load for point in found}) > 1 and not objective.is_capacity
        under = ["load"] if several else []
        lead = ["#", "run", "stage", "at", "took"]
        head = [*lead, *under, "configuration", objective.metric, "SLOs"]
        rows = [
            [
                str(point.order),
                str(point.measurement_id),
                point.stage,
                time.strftime("%H:%M:%S", time.gmtime(point.started_at_s)),
                "–" if point.duration_s is None else duration(point.duration_s),
                *([markup.escape(point.load)] if several else []),
                comparison.config_cell(point.config),
                comparison.figure_cell(point.objective, objective.metric),
                runs.verdict_cell(point),
            ]
            for point in found
        ]
        st.html(markup.table(head, rows, numeric=(0, 1, 4)))
        runs.hint(runs.EXPORT, "One run as a page to hand on:")
