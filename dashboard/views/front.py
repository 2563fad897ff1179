"""The Pareto front of a study with several objectives: as stored, each figure with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import charts, markup
from dashboard.history import config_text, estimate, unit_of
from dashboard.views.comparison import config_cell, figure_cell

FEWEST_DRAWN = 2
"""A front of one point is a best, and needs no chart."""


def draw(front: Sequence[Mapping[str, Any]]) -> None:
    """front: the stored points, best in the first objective first; nothing for one objective."""
    if not front:
        return
    names = list(front[0].get("figures") or {})
    st.html(markup.heading("Pareto front", "none of these is beaten in every objective"))
    if len(names) > 1 and len(front) >= FEWEST_DRAWN:
        with st.container(border=True, key="panel-front"):
            st.altair_chart(charts.front(points(front), names), width="stretch", key="front")
    rows = [
        [
            config_cell(point["config"]),
            *(figure_cell(estimate(point["figures"][name], unit_of(name)), name) for name in names),
            str(point.get("runs", "–")),
        ]
        for point in front
    ]
    st.html(markup.table(["configuration", *names, "runs"], rows, numeric=(len(names) + 1,)))


def _drawable(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def points(front: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a point: its configuration, and of each figure value, low and high."""
    rows = []
    for point in front:
        row: dict[str, Any] = {"config": config_text(point["config"])}
        for name, stored in point["figures"].items():
            figure = estimate(stored, unit_of(name))
            ends = {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
            row |= {key: value if _drawable(value) else None for key, value in ends.items()}
        rows.append(row)
    return rows
