"""Altair charts of the pages: small, labelled with unit, gaps where nothing was measured.

Colours and shapes belong to names, never to positions, so that a tick changes points and not looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from dashboard.chart_intervals import drawn_interval, interval_marks
from dashboard.format import interval
from dashboard.history import (
    Estimate,
    Objective,
    Point,
    best_after_each,
    config_text,
    unit_of,
)
from dashboard.theme import BAD, GOOD, NEUTRAL, SERIES, WARN

Points = Sequence[tuple[float, float | None]]


def time_series(
    series: Mapping[str, Points],
    unit: str,
    *,
    scale: float = 1.0,
    bound: float | None = None,
    top: float | None = None,
    height: int = 130,
) -> alt.LayerChart | alt.FacetChart:
    """Lines over time from zero up; bound (in data units) draws the SLO as a dashed rule."""
    rows = [
        {
            "time": pd.Timestamp(at_s, unit="s", tz="UTC"),
            "value": None if value is None else value * scale,
            "series": name,
        }
        for name, points in series.items()
        for at_s, value in points
    ]
    frame = pd.DataFrame(rows, columns=["time", "value", "series"])
    names, clock = list(series), _clock(series)
    highest = max((v for points in series.values() for _, v in points if v is not None), default=0)
    top = 1.0 if top is None and not highest and not bound else top
    domain = alt.Undefined if top is None else [0, top]
    base = alt.Chart(frame).encode(
        x=alt.X("time:T", title=None, axis=alt.Axis(format=clock, tickCount=4, grid=False)),
        y=alt.Y(
            "value:Q",
            title=None,
            scale=alt.Scale(zero=True, domain=domain, nice=True),
            axis=alt.Axis(tickCount=3, format=",.6~g"),
        ),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])),
            legend=None
            if len(names) == 1
            else alt.Legend(orient="top", title=None, symbolType="stroke", padding=0, offset=2),
        ),
        tooltip=[
            alt.Tooltip("time:T", format=clock),
            alt.Tooltip("series:N"),
            alt.Tooltip("value:Q", format=".3~g", title=unit),
        ],
    )
    layers = [
        base.mark_line(strokeWidth=1.5, interpolate="linear"),
        base.mark_circle(size=40, opacity=0).encode(),
    ]
    if bound is not None:
        rule = alt.Chart(pd.DataFrame({"bound": [bound * scale]}))
        layers.append(
            rule.mark_rule(color=BAD, strokeDash=[4, 3], strokeWidth=1).encode(y="bound:Q")
        )
    return alt.layer(*layers).properties(height=height, background="transparent")


def _clock(series: Mapping[str, Points]) -> str:
    """How a moment is written: with its day where the chart spans more than half of one."""
    times_s = [at_s for points in series.values() for at_s, _ in points]
    long = bool(times_s) and max(times_s) - min(times_s) > 43_200
    return "%d %b %H:%M" if long else "%H:%M:%S"


OUTCOME_COLOURS = {
    "met": GOOD,
    "missed": BAD,
    "undecided": WARN,
    "unjudged": NEUTRAL,
    "failed": BAD,
    "invalid": NEUTRAL,
    "no result": NEUTRAL,
}
OUTCOME_SHAPES = {
    "met": "circle",
    "missed": "triangle-down",
    "undecided": "diamond",
    "unjudged": "circle",
    "failed": "cross",
    "invalid": "square",
    "no result": "cross",
}


def axis_unit(unit: str) -> tuple[float, str]:
    """What a figure is multiplied by on an axis, and the unit that is then written."""
    scale = 1e3 if unit == "s" else 100.0 if unit == "ratio" else 1.0
    return scale, {"s": "ms", "ratio": "%"}.get(unit, unit)


def study_history(
    found: Sequence[Point], objective: Objective, baseline: float | None, *, height: int = 260
) -> alt.LayerChart | alt.FacetChart:
    """Objective by measurement with intervals; runs without a result lie on the axis as crosses."""
    scale, unit = axis_unit(objective.unit)
    frame = _history_frame(found, objective, scale)
    present = [name for name in OUTCOME_COLOURS if name in set(frame["outcome"])]
    x = alt.X(
        "order:Q",
        title="measurement",
        scale=alt.Scale(domain=[0.5, max(p.order for p in found) + 0.5], nice=False),
        axis=alt.Axis(tickMinStep=1, format="d", grid=False),
    )
    measured = any(point.objective.value for point in found)
    y = alt.Y(
        "value:Q",
        title=f"{'level offered' if objective.is_capacity else objective.metric} ({unit})",
        scale=alt.Scale(zero=True, domain=alt.Undefined if measured else [0, 1]),
        axis=alt.Axis(format=",.6~g"),
    )
    base = alt.Chart(frame)
    marks = base.mark_point(size=55, filled=True, opacity=1).encode(
        x=x,
        y=y,
        color=alt.Color(
            "outcome:N",
            title=None,
            scale=alt.Scale(domain=present, range=[OUTCOME_COLOURS[name] for name in present]),
            legend=alt.Legend(orient="top"),
        ),
        shape=alt.Shape(
            "outcome:N",
            title=None,
            scale=alt.Scale(domain=present, range=[OUTCOME_SHAPES[name] for name in present]),
        ),
        tooltip=[
            alt.Tooltip("order:Q", title="measurement"),
            alt.Tooltip("stage:N"),
            alt.Tooltip("config:N"),
            alt.Tooltip("shown:N", title=objective.metric),
            alt.Tooltip("outcome:N"),
            alt.Tooltip("reason:N"),
        ],
    )
    best = base.mark_line(interpolate="step-after", strokeWidth=1.5, color=SERIES[0]).encode(
        x=x, y="best:Q"
    )
    layers = [*interval_marks(base, x), best, marks]
    if baseline is not None:
        rule = alt.Chart(pd.DataFrame({"baseline": [baseline * scale]}))
        layers.insert(
            0, rule.mark_rule(strokeDash=[4, 3], color=NEUTRAL, strokeWidth=1).encode(y="baseline")
        )
    return alt.layer(*layers).properties(height=height, background="transparent")


def front(
    points: Sequence[Mapping[str, Any]], names: Sequence[str], *, height: int = 260
) -> alt.LayerChart | alt.FacetChart:
    """The first two objectives against each other, with both intervals; joined by a line only where
    there is no third: the front of three is no line in a plane."""
    axes = {name: axis_unit(unit_of(name)) for name in names}
    frame = pd.DataFrame(points)
    for name in names:
        frame[f"{name}_shown"] = [
            interval(p[name], p[f"{name}_low"], p[f"{name}_high"], unit_of(name)) for p in points
        ]
        for column in (name, f"{name}_low", f"{name}_high"):
            frame[column] = frame[column] * axes[name][0]
    x_name, y_name, *others = names
    x, y = (
        channel(f"{name}:Q", title=f"{name} ({axes[name][1]})", scale=alt.Scale(zero=False))
        for channel, name in ((alt.X, x_name), (alt.Y, y_name))
    )
    base = alt.Chart(frame)
    layers = [
        base.mark_rule(strokeWidth=1, color=NEUTRAL).encode(
            x=x, y=f"{y_name}_low:Q", y2=f"{y_name}_high:Q"
        ),
        base.mark_rule(strokeWidth=1, color=NEUTRAL).encode(
            y=y, x=f"{x_name}_low:Q", x2=f"{x_name}_high:Q"
        ),
        base.mark_point(size=60, filled=True, opacity=1, color=SERIES[0]).encode(
            x=x,
            y=y,
            tooltip=[
                alt.Tooltip("config:N"),
                *(alt.Tooltip(f"{name}_shown:N", title=name) for name in names),
            ],
        ),
    ]
    if not others:
        layers.insert(2, base.mark_line(strokeWidth=1.5, color=SERIES[0]).encode(x=x, y=y))
    return alt.layer(*layers).properties(height=height, background="transparent")


def sweep(
    knob: str,
    labels: Sequence[str],
    figures: Sequence[Estimate],
    key: str,
    bound: tuple[float, str] | None,
    *,
    height: int = 170,
) -> alt.LayerChart | alt.FacetChart | None:
    """One figure at each value of a knob, in the order given; bound: of the SLO, with its text.
    None where nothing has a finite value."""
    known = [
        (label, figure)
        for label, figure in zip(labels, figures, strict=True)
        if figure.value is not None and math.isfinite(figure.value)
    ]
    if not known:
        return None
    unit = known[0][1].unit
    scale, shown_unit = axis_unit(unit)
    frame = pd.DataFrame(
        [
            {
                "knob": label,
                "value": scale * (figure.value or 0.0),
                **drawn_interval(figure, scale),
                "shown": f"{interval(figure.value, figure.low, figure.high, unit)} n={figure.n}",
            }
            for label, figure in known
        ]
    )
    base = alt.Chart(frame)
    x = alt.X("knob:O", title=knob, sort=list(labels), scale=alt.Scale(domain=list(labels)),
              axis=alt.Axis(labelAngle=0))  # fmt: skip
    y = alt.Y("value:Q", title=f"{key} ({shown_unit})", scale=alt.Scale(zero=True),
              axis=alt.Axis(format=",.6~g", tickCount=4))  # fmt: skip
    tooltip = [alt.Tooltip("knob:N", title=knob), alt.Tooltip("shown:N", title=key)]
    layers: list[Any] = [
        *interval_marks(base, x),
        base.mark_point(size=55, filled=True, opacity=1, color=SERIES[0]).encode(
            x=x, y=y, tooltip=tooltip
        ),
    ]
    if bound is not None:
        rule = alt.Chart(pd.DataFrame({"bound": [bound[0] * scale], "slo": [bound[1]]}))
        layers.append(
            rule.mark_rule(color=BAD, strokeDash=[4, 3], strokeWidth=1).encode(
                y="bound:Q", tooltip=[alt.Tooltip("slo:N", title="SLO")]
            )
        )
    return alt.layer(*layers).properties(height=height, background="transparent")


def _history_frame(found: Sequence[Point], objective: Objective, scale: float) -> pd.DataFrame:
    rows = []
    for point, leader in zip(found, best_after_each(found, objective), strict=True):
        figure = point.objective
        value = figure.value
        best = leader.objective.value if leader is not None else None
        rows.append(
            {
                "order": point.order,
                "stage": point.stage,
                "outcome": point.drawn_as,
                "config": config_text(point.config),
                "reason": point.reason or "–",
                "shown": interval(figure.value, figure.low, figure.high, objective.unit),
                "value": 0.0 if value is None else value * scale,
                **drawn_interval(figure, scale),
                "best": None if best is None else best * scale,
            }
        )
    return pd.DataFrame(rows)
