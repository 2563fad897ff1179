"""The charts of a run and of a comparison: distributions and what happened over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.report.html import series
from tuner.report.html.scale import FAR_BOUND, Scale, fitted, latency_axis
from tuner.report.html.series import Frame
from tuner.report.html.svg import BOTTOM, LEFT, RIGHT, TOP, Plot
from tuner.slo import Clause
from tuner.stats.sections import quantile
from tuner.units import show

Floats = npt.NDArray[np.float64]

PANEL = (470, 230)
WIDE = (980, 190)
LATENCIES = {
    "ttft": "Time to first token", "itl": "Inter-token latency",
    "tpot": "Time per output token", "e2e": "End-to-end latency",
}  # fmt: skip
FEW_DOTS = 150
OUTLIER = 12.0
"""A slowest request this many times the median asks for a logarithmic axis over time."""

QUANTILES = (0.5, 0.95, 0.99)


def distribution(
    metric: str, sides: Sequence[tuple[str, Floats]], clauses: Sequence[Clause]
) -> str:
    """The cumulative distributions of (name, seconds); clauses of the metric as bounds."""
    width, height = PANEL
    bounds = [clause for clause in clauses if clause.metric == metric]
    both = np.concatenate([values for _, values in sides])
    x = latency_axis(both, [c.bound for c in bounds], LEFT, width - RIGHT)
    y = Scale(0.0, 1.0, height - BOTTOM, TOP, "share")
    plot = Plot(width, height, x, y, f"{LATENCIES[metric]}: cumulative distribution")
    plot.grid(x_ticks=5, y_ticks=4)
    if not np.isfinite(both).any():
        plot.note("no request has a value")
    for number, (name, values) in enumerate(sides, 1):
        at, share = series.cdf(values)
        if not len(at):
            continue
        start = np.concatenate([[at[0]], at])
        plot.step(start, np.concatenate([[0.0], share]), f"s{number}", name)
        for q in QUANTILES:
            value = quantile(np.sort(values), q)
            if math.isfinite(value):
                told = f"{name} p{q * 100:g}: {show(value, 's')}".strip()
                plot.point(value, q, f"dot s{number}", told)
    for clause in bounds:
        if clause.quantile is not None:
            plot.mark_y(clause.quantile, "", "bound")
        plot.mark_x(clause.bound, f"{clause.stat} {clause.op} {show(clause.bound, 's')}", "bound")
    return plot.svg()


def quantile_line(values: Floats) -> str:
    """`p50 195 ms · p95 222 ms · p99 ∞ · n 214`."""
    if not len(values):
        return "no data"
    ordered = np.sort(values)
    parts = [f"p{q * 100:g} {show(quantile(ordered, q), 's')}" for q in QUANTILES]
    return " · ".join([*parts, f"n {len(values):,}"])


def ttft_over_time(frame: Frame, window: tuple[float, float], clauses: Sequence[Clause]) -> str:
    """One dot a request at its scheduled send; of many the band, the median and the slowest."""
    known = np.isfinite(frame.first)
    at, values = frame.scheduled[known], (frame.first - frame.scheduled)[known]
    bounds = [clause for clause in clauses if clause.metric == "ttft"]
    end_s = frame.last_s
    plot = _over_time(_ttft_axis(values, bounds), end_s, window,
                      "Time to first token of each request by its scheduled send")  # fmt: skip
    if len(at) > series.MOST_DOTS:
        binned = series.over_time(at, values, end_s)
        plot.area(binned.at, binned.low, binned.high, "band s1")
        plot.line(binned.at, binned.middle, "s1", "median")
    rows = series.dots(at, values)
    plot.dots(at[rows], values[rows], "s1", 1.6 if len(rows) > FEW_DOTS else 3.0)
    failed = frame.scheduled[frame.failed]
    plot.crosses(series.thin(failed, series.MOST_CROSSES), TOP + 8, "cross")
    for clause in bounds:
        plot.mark_y(clause.bound, clause.text, "bound")
    return plot.svg()


def _ttft_axis(values: Floats, bounds: Sequence[Clause]) -> Scale:
    """From 0, with a bound that is not far above; logarithmic where a few would squash the rest."""
    bottom, positive = WIDE[1] - BOTTOM, values[values > 0]
    if not len(positive):
        return Scale(0.0, 1.0, bottom, TOP, "s")
    top = float(positive.max())
    near = [clause.bound for clause in bounds if clause.bound <= FAR_BOUND * top]
    if top > OUTLIER * float(np.median(positive)):
        low = min([float(np.quantile(positive, 0.01)), *near])
        return Scale(low / 1.3, max([top, *near]) * 1.3, bottom, TOP, "s", log=True)
    return fitted(np.array([top, *near]), bottom, TOP, "s")


def throughput_over_time(frame: Frame, window: tuple[float, float]) -> str:
    end_s = frame.last_s
    edges, rates = series.tokens_per_second(frame, end_s)
    plot = _over_time(fitted(rates, WIDE[1] - BOTTOM, TOP, ""), end_s, window,
                      "Output tokens of good requests per second")  # fmt: skip
    plot.area(np.repeat(edges, 2)[1:], np.zeros(2 * len(edges) - 1), np.repeat(rates, 2)[:-1],
              "band s3")  # fmt: skip
    plot.step(edges, rates, "s3")
    return plot.svg()


def flight_over_time(
    frame: Frame, window: tuple[float, float], server: Mapping[str, Any] | None
) -> str:
    """What the client had in flight, and of it what the server said to run and to wait."""
    end_s = frame.last_s
    times, level = series.flight(frame, end_s)
    told = [(name, *_told(server, name)) for name in ("running", "waiting")]
    highest = np.concatenate([level, *(values for _, _, values in told)])
    plot = _over_time(fitted(highest, WIDE[1] - BOTTOM, TOP, ""), end_s, window,
                      "Requests in flight")  # fmt: skip
    plot.step(np.append(times, end_s), np.append(level, level[-1:]), "s1", "in flight (client)")
    for number, (name, at, values) in enumerate(told):
        if len(at):
            plot.line(at, values, ("s3", "s2")[number], f"{name} (server)")
    return plot.svg()


def kv_over_time(frame: Frame, window: tuple[float, float], server: Mapping[str, Any]) -> str:
    """Share of the server's KV cache in use; "" where it does not say."""
    at, values = _told(server, "kv_usage")
    if not len(at):
        return ""
    plot = _over_time(Scale(0.0, 1.0, WIDE[1] - BOTTOM, TOP, "share"), frame.last_s, window,
                      "KV cache in use")  # fmt: skip
    plot.line(at, values, "s4", "KV cache in use")
    return plot.svg()


def interval(
    value: float, low: float, high: float, bound: float | None, upper: bool, unit: str
) -> str:
    """A figure's interval on a short axis, its bound marked: which side of it lies the whole?"""
    width, height = 260, 34
    known = [part for part in (value, low, high, bound) if part is not None and math.isfinite(part)]
    if not known or not math.isfinite(value):
        return ""
    span = (max(known) - min(known)) or abs(known[0]) or 1.0
    x = Scale(min(known) - 0.15 * span, max(known) + 0.15 * span, 6, width - 6, unit)
    parts = []
    ends = [x.at(low) if math.isfinite(low) else 6.0,
            x.at(high) if math.isfinite(high) else width - 6.0]  # fmt: skip
    if bound is not None:
        at = x.at(bound)
        a, b = (at, width - 6.0) if upper else (6.0, at)
        parts.append(f'<rect class="beyond" x="{a:.1f}" y="4" width="{max(0, b - a):.1f}" '
                     f'height="{height - 8}"/>')  # fmt: skip
        parts.append(f'<line class="bound" x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{height - 2}"/>')
    middle = height / 2
    parts.append(f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" '
                 f'y2="{middle}"/>')  # fmt: skip
    parts.append(f'<circle class="dot s1" cx="{x.at(value):.1f}" cy="{middle}" r="4"/>')
    return f'<svg class="interval" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def forest(ratio: float, low: float, high: float, reach: float, outcome: str) -> str:
    """A ratio's interval around 1 on a logarithmic axis of ± reach."""
    width, height = 220, 22
    x = Scale(1 / reach, reach, 4, width - 4, "", log=True)
    one = x.at(1.0)
    parts = [f'<line class="axis" x1="{one:.1f}" x2="{one:.1f}" y1="0" y2="{height}"/>']
    if math.isfinite(ratio) and ratio > 0:
        a = x.at(low if low > 0 else 1 / reach)
        b = x.at(high if math.isfinite(high) else reach)
        parts.append(f'<line class="whisker {outcome}" x1="{a:.1f}" x2="{b:.1f}" y1="11" '
                     'y2="11"/>')  # fmt: skip
        parts.append(f'<circle class="dot {outcome}" cx="{x.at(ratio):.1f}" cy="11" r="4"/>')
    return f'<svg class="forest" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def _over_time(y: Scale, end_s: float, window: tuple[float, float], label: str) -> Plot:
    """The frame of a chart over the whole run, what does not count shaded."""
    width, height = WIDE
    plot = Plot(width, height, Scale(0.0, max(end_s, 1e-6), LEFT, width - RIGHT, "s"), y, label)
    plot.shade(0.0, window[0], "warm-up")
    plot.shade(window[1], end_s, "after the window")
    plot.grid(x_ticks=10, y_ticks=4)
    return plot


def _told(server: Mapping[str, Any] | None, name: str) -> tuple[Floats, Floats]:
    """A series of the server's state; empty where it exports none."""
    told = (server or {}).get("series") or {}
    at, values = told.get("at_s") or [], told.get(name) or []
    known = [(a, v) for a, v in zip(at, values, strict=False) if a is not None and v is not None]
    if not known:
        return np.empty(0), np.empty(0)
    pairs = np.array(known, dtype=float)
    return pairs[:, 0], pairs[:, 1]
