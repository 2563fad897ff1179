"""Which part of a run counts: after its warm-up, while its load was kept up.

The window is chosen from the run's own series and says why. What came before or after stays in the
records; nothing is trimmed that could not be told from the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.figures.samples import Window, in_order
from tuner.records import RequestRecord
from tuner.stats.saturation import LEVEL, Saturation, find_saturation
from tuner.stats.steady import BATCH, FEWEST_BATCHES, Series, Steady, find_steady
from tuner.workload.arrivals import Arrivals

BINS = 200
"""Of the run's time, for its throughput: 40 batches of five."""

DRAINED = 12.0
"""Mean gaps between sends without another one: the load had ended (by chance once in 160,000)."""

KEPT = 0.5
"""A cool-down is cut only if at least this share of the window is left."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """window_s on the records' clock. cut_s: the cool-down that does not count. changing: why no
    steady state was looked for, "" otherwise."""

    window_s: Window
    steady: Steady
    cut_s: float = 0.0
    changing: str = ""

    @property
    def why(self) -> str:
        start = f"from {self.window_s[0]:.1f} s: {self.changing or self.steady.why}"
        if self.cut_s <= 0:
            return f"{start}; to {self.window_s[1]:.1f} s"
        return (
            f"{start}; to {self.window_s[1]:.1f} s: the last send, {self.cut_s:.1f} s of cool-down "
            "do not count"
        )

    def as_dict(self) -> dict[str, Any]:
        return {**self.steady.as_dict(), "cool_down_s": self.cut_s, "why": self.why}


def choose_window(
    records: Sequence[RequestRecord],
    arrivals: Arrivals,
    *,
    least_s: float,
    end_s: float,
    most_s: float = math.inf,
    load_ended: bool = False,
) -> Chosen:
    """The window of a run that was sent until end_s at most.

    least_s and most_s bound the warm-up; a load whose every request is given (all at once, a
    trace) has none. load_ended: there was nothing more to send, or sending
    was ended; the drain after the last send is cut off.
    """
    least_s = min(least_s, end_s)
    changing = _changing(arrivals)
    if changing:
        given = arrivals.kind in ("at_once", "trace")
        steady = Steady(0.0 if given else least_s, None, changing)
    else:
        steady = find_steady(_series(records, end_s), least_s, min(most_s, _middle_s(records)))
    cut_s = _cool_down_s(records, steady.start_s, end_s, load_ended)
    return Chosen((steady.start_s, end_s - cut_s), steady, cut_s, changing)


def saturation_of(
    records: Sequence[RequestRecord], arrivals: Arrivals, window_s: Window, level: float = LEVEL
) -> Saturation | None:
    """Of an open load at a constant rate; a closed loop cannot outrun its server."""
    if arrivals.closed or _changing(arrivals):
        return None
    scheduled = np.array([r.scheduled_s for r in records])
    ended = np.array([math.nan if r.state == "censored" else r.end_s for r in records])
    return find_saturation(scheduled, ended, window_s, level=level)


def _changing(arrivals: Arrivals) -> str:
    """Why a load has no steady state of its own; "" for one that has."""
    if arrivals.kind == "at_once":
        return "all requests are sent at once: there is no steady state"
    if arrivals.kind == "trace":
        return "the load is a trace: no steady state is looked for"
    if arrivals.profile is not None:
        return "the load changes by plan: no steady state is looked for"
    return ""


def _middle_s(records: Sequence[RequestRecord]) -> float:
    """A warm-up never takes more than half of the requests, however they are spread in time."""
    return float(np.median([r.scheduled_s for r in records])) if records else math.inf


def _series(records: Sequence[RequestRecord], end_s: float) -> dict[str, Series]:
    """Latencies by scheduled time (logarithms: one slow request is no transient) and tokens per
    slice of time."""
    good = [r for r in in_order(records) if r.ok and r.scheduled_s < end_s]
    at_s = np.array([r.scheduled_s for r in good])
    series = {
        "TTFT": Series(at_s, np.log(np.maximum(1e-6, [r.ttft_s for r in good]))),
        "E2E": Series(at_s, np.log(np.maximum(1e-6, [r.e2e_s for r in good]))),
    }
    tokens_at = [at for r in good for at in r.chunk_times_s]
    tokens = [float(n) for r in good for n in r.chunk_tokens]
    if end_s > 0 and len(good) >= BATCH * FEWEST_BATCHES:
        amounts, edges = np.histogram(tokens_at, bins=BINS, range=(0.0, end_s), weights=tokens)
        series["throughput"] = Series(edges[:-1], amounts)
    return series


def _cool_down_s(
    records: Sequence[RequestRecord], start_s: float, end_s: float, load_ended: bool
) -> float:
    """How long before end_s the last request was sent, where that is no mere gap of the arrivals
    and the window keeps most of its length."""
    sends = sorted(r.scheduled_s for r in records if start_s <= r.scheduled_s < end_s)
    if len(sends) < 2:
        return 0.0
    last_s = math.nextafter(sends[-1], math.inf)  # the last request belongs to the window
    idle_s = end_s - last_s
    mean_gap_s = (sends[-1] - sends[0]) / (len(sends) - 1)
    if not load_ended and idle_s <= DRAINED * mean_gap_s:
        return 0.0
    return idle_s if idle_s > 0 and last_s - start_s >= KEPT * (end_s - start_s) else 0.0
