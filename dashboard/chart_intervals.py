"""Intervals in the charts: bars from low to high, cut off where they reach out of proportion."""

from __future__ import annotations

import altair as alt

from dashboard.history import Estimate
from dashboard.theme import NEUTRAL
from tuner.report.html.scale import drawn_end

CUT_OFF = "▲: the interval reaches further"


def drawn_interval(figure: Estimate, scale: float) -> dict[str, float | None]:
    """low and high as drawn; cut is where an interval that reaches further up is cut off."""
    low = None if figure.low is None else scale * figure.low
    if figure.high is None or figure.value is None:
        return {"low": low, "high": None, "cut": None}
    high = drawn_end(figure.value, figure.high)
    cut = scale * high if high < figure.high else None
    return {"low": low, "high": scale * high, "cut": cut}


def interval_marks(base: alt.Chart, x: alt.X) -> list[alt.Chart]:
    """Bars, and a mark at the end of each that is cut off."""
    arrow = base.mark_point(shape="triangle-up", size=45, filled=True, opacity=1, color=NEUTRAL)
    return [
        base.mark_rule(strokeWidth=1, color=NEUTRAL).encode(x=x, y="low:Q", y2="high:Q"),
        arrow.encode(x=x, y="cut:Q"),
    ]
