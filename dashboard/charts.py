"""Altair charts of the pages: small, labelled with unit, gaps where nothing was measured.

The spec of a chart depends only on its kind, never on the data, so a tick replaces points in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from dashboard.theme import BAD, SERIES

Points = Sequence[tuple[float, float | None]]


def time_series(
    series: Mapping[str, Points],
    unit: str,
    *,
    scale: float = 1.0,
    bound: float | None = None,
    top: float | None = None,
    height: int = 130,
) -> alt.LayerChart:
    """Lines over time from zero up; bound (in data units) draws the SLO as a dashed rule."""
    rows = [
        {"time": pd.Timestamp(at_s, unit="s", tz="UTC"), "value": value * scale, "series": name}
        if value is not None
        else {"time": pd.Timestamp(at_s, unit="s", tz="UTC"), "value": None, "series": name}
        for name, points in series.items()
        for at_s, value in points
    ]
    frame = pd.DataFrame(rows, columns=["time", "value", "series"])
    names = list(series)
    highest = max((row["value"] for row in rows if row["value"] is not None), default=0.0)
    top = 1.0 if top is None and not highest and not bound else top
    domain = alt.Undefined if top is None else [0, top]
    base = alt.Chart(frame).encode(
        x=alt.X("time:T", title=None, axis=alt.Axis(format="%H:%M:%S", tickCount=4, grid=False)),
        y=alt.Y(
            "value:Q",
            title=None,
            scale=alt.Scale(zero=True, domain=domain, nice=True),
            axis=alt.Axis(tickCount=3, format="~s"),
        ),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=names, range=list(SERIES[: len(names)])),
            legend=None
            if len(names) == 1
            else alt.Legend(orient="top", title=None, symbolType="stroke", padding=0, offset=2),
        ),
        tooltip=[
            alt.Tooltip("time:T", format="%H:%M:%S"),
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
    return alt.layer(*layers).properties(height=height)
