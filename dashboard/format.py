"""Numbers as people read them: three significant figures, a unit always, never a silent 0.

A figure is a value, or one of four named absences; `Shown.kind` keeps them apart for styling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from storage.sources.base import Outcome, Reading
from tuner.units import noun

Unit = Literal["", "s", "ratio", "bytes", "tok", "tok/s", "req", "req/s", "seq", "events", "blocks"]
Kind = Literal["value", "zero", "no_traffic", "no_data", "stale", "unreachable"]

_WORDS: dict[Outcome, str] = {
    Outcome.NO_TRAFFIC: "no traffic",
    Outcome.NO_DATA: "no data",
    Outcome.STALE: "stale",
    Outcome.UNREACHABLE: "unreachable",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure ready for the page: `text` and `unit` are set apart so that units can be small."""

    text: str
    unit: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.text} {self.unit}".strip()


def number(value: float) -> str:
    """Three significant figures; 1,234 up to a million, then 1.23M; NaN and ∞ say so."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e9:
        return f"{value / 1e9:.3g}G"
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 0.001:
        return f"{value:.3g}"
    return f"{value:.1e}"


def scaled(value: float, unit: str) -> tuple[str, str]:
    """(text, unit) with the unit that reads best: 0.0123 s is 12.3 ms, 0.5 ratio is 50 %."""
    if math.isinf(value):
        return number(value), ""
    if unit == "s" and math.isfinite(value):
        return _seconds(value)
    if unit == "ratio" and math.isfinite(value):
        return _percent(value), "%"
    if unit == "bytes" and math.isfinite(value):
        return _bytes(value)
    if unit == "events" and value >= 1:
        return number(round(value)), unit  # a windowed increase is extrapolated: 2.01 events
    return number(value), unit


def quantity(value: float | None, unit: str = "") -> str:
    """`12.3 ms`, `1,234 tok/s`, or an en dash where nothing was measured."""
    if value is None:
        return "–"
    return " ".join(scaled(value, unit)).strip()


def interval(value: float | None, low: float | None, high: float | None, unit: str = "") -> str:
    """`123 ms (118 … 131)`, units repeated where they differ; only the value without interval."""
    if value is None or low is None or high is None:
        return quantity(value, unit)
    (_, own), (start, start_unit), (end, end_unit) = (
        scaled(number, unit) for number in (value, low, high)
    )
    if {start_unit, end_unit} <= {own, ""}:  # infinity carries no unit
        return f"{quantity(value, unit)} ({start} … {end})"
    return f"{quantity(value, unit)} ({quantity(low, unit)} … {quantity(high, unit)})"


def duration(seconds: float) -> str:
    """`5 s`, `3 min`, `2 h 05 min`, `3 d 4 h`: for ages and windows, not for latencies."""
    if seconds < 0:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds:.1f} s"
    if seconds < 120 and seconds != 60:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = int(seconds // 3600)
    if hours < 48:
        return f"{hours} h {int(seconds % 3600 // 60):02d} min"
    return f"{hours // 24} d {hours % 24} h"


def show(reading: Reading, unit: Unit) -> Shown:
    """A source's answer for the page; a cut-off quantile keeps its ≥ or ≤."""
    if not reading.ok or reading.value is None:
        word = _WORDS.get(reading.outcome, "no data")
        return Shown(word, "", _kind(reading.outcome))
    text, scaled_unit = scaled(reading.value, unit)
    return Shown(f"{reading.bound}{text}", scaled_unit, "value" if reading.value else "zero")


def provenance(reading: Reading, *, of: str = "", rate: bool = False) -> str:
    """Window and what was counted in it, under a figure; the reason where there is no figure.

    of: what its samples are, one of them (`request`). rate: the figure is so many of them a second,
    and its samples are how often the counter was read, as they are where `of` is left out.
    """
    if not reading.ok:
        return reading.reason
    if not reading.window_s:
        return "now"
    parts = [f"last {duration(reading.window_s)}"]
    if rate:
        parts.append(_counted((reading.value or 0.0) * reading.window_s, of))
    if reading.samples and (rate or not of):
        parts.append(f"read {number(reading.samples)} times")
    elif reading.samples:
        parts.append(_counted(reading.samples, of))
    return " · ".join(parts)


def _counted(count: float, singular: str) -> str:
    """`n=1 request`, `n=1,234 requests`; a windowed increase is extrapolated, no whole number."""
    whole = round(count)
    return f"n={number(whole)} {noun(whole, singular)}"


def _kind(outcome: Outcome) -> Kind:
    if outcome is Outcome.NO_TRAFFIC:
        return "no_traffic"
    if outcome is Outcome.STALE:
        return "stale"
    if outcome is Outcome.UNREACHABLE:
        return "unreachable"
    return "no_data"


def _seconds(value: float) -> tuple[str, str]:
    size = abs(value)
    if size == 0:
        return "0", "s"
    if size < 1e-3:
        return f"{value * 1e6:.3g}", "µs"
    if size < 0.9995:
        return f"{value * 1e3:.3g}", "ms"
    if size < 120:
        return f"{value:.3g}", "s"
    return f"{value / 60:.3g}", "min"


def _percent(value: float) -> str:
    percent = value * 100
    if percent in (0.0, 100.0):
        return f"{percent:.0f}"
    if 99.9 < percent < 100:
        return ">99.9"
    if 0 < percent < 0.1:
        return "<0.1"
    return f"{percent:.1f}"


def _bytes(value: float) -> tuple[str, str]:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.3g}", unit
        value /= 1024
    return f"{value:.3g}", "TiB"
