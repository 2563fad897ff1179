"""The overview's six charts over the last minutes, or days. They redraw slower than the figures
tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from dashboard import charts, live, markup
from dashboard.format import duration
from dashboard.judge import latency_slos
from dashboard.settings import current
from storage.sources.base import MetricSource

LONGEST_LIVE_S = 900.0
"""Charts of windows up to here show what led to them; of longer ones, just the window."""


@dataclass(frozen=True, slots=True)
class Panel:
    """lines: legend name → (signal, quantile or None). bound_of names the latency of an SLO."""

    title: str
    unit: str
    lines: dict[str, tuple[str, float | None]]
    scale: float = 1.0
    top: float | None = None
    bound_of: str = ""


PANELS = (
    Panel("Requests", "req", {"running": ("running", None), "waiting": ("waiting", None)}),
    Panel("KV cache in use", "%", {"KV": ("kv_usage", None)}, scale=100.0, top=100.0),
    Panel(
        "Token rate",
        "tok/s",
        {"prompt": ("prompted", None), "generated": ("generated", None)},
    ),
    Panel("TTFT", "ms", {"p50": ("ttft", 0.5), "p95": ("ttft", 0.95)}, 1e3, bound_of="ttft"),
    Panel("ITL", "ms", {"p50": ("itl", 0.5), "p95": ("itl", 0.95)}, 1e3, bound_of="itl"),
    Panel("Preemptions", "events/s", {"preemptions": ("preemptions", None)}),
)


def draw(source: MetricSource, window_s: float) -> None:
    span_s = max(300.0, 3 * window_s) if window_s <= LONGEST_LIVE_S else window_s
    watched = live.Watched(source.over(span_s))
    if current().prometheus and not watched.status.up and not watched.names:
        return  # the figures above say why; every range would wait for its own time-out
    rate_window_s = max(15.0, 4 * watched.source.scrape_interval_s, span_s / live.STEPS)
    st.html(
        markup.heading(
            f"Last {duration(span_s)}",
            f"rates and quantiles over a sliding {duration(rate_window_s)}; "
            f"{_gauges(span_s)}gaps: nothing measured; dashed: SLO",
        )
    )
    columns = [column for _ in range(2) for column in st.columns(3)]
    for column, panel in zip(columns, PANELS, strict=True):
        series = {
            name: live.chart_points(watched, signal, span_s=span_s, window_s=rate_window_s, q=q)
            for name, (signal, q) in panel.lines.items()
        }
        with column:
            _panel(panel, series)


def _gauges(span_s: float) -> str:
    return "queue and KV: their peaks; " if span_s / live.STEPS > live.LIVE_STEP_S else ""


def _panel(panel: Panel, series: Mapping[str, charts.Points]) -> None:
    measured = any(value is not None for points in series.values() for _, value in points)
    with st.container(border=True, key=f"panel-{panel.title.lower().replace(' ', '-')}"):
        st.html(
            f'<div class="charttitle"><b>{markup.escape(panel.title)}</b>'
            f"<span>{markup.escape(panel.unit)}</span></div>"
        )
        if not measured:
            st.html('<div class="emptychart">nothing measured</div>')
            return
        st.altair_chart(
            charts.time_series(
                series, panel.unit, scale=panel.scale, top=panel.top, bound=_bound(panel.bound_of)
            ),
            width="stretch",
            key=f"chart-{panel.title}",
        )


def _bound(latency: str) -> float | None:
    """The bound of the first SLO on that latency, seconds."""
    slos = latency_slos(current().slos)
    return next((slo.bound_s for slo in slos if slo.name == latency), None)
