"""Figures as Readings, in the words that every source shares: a value, no traffic, stale.

Shared so that scraper, recording, history and Prometheus cut off in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from storage.sources import windows
from storage.sources.base import Outcome, Reading
from storage.sources.windows import finite

STALE_INTERVALS = 4
STALE_AFTER_S = 15.0
NO_NUMBER = "what is exported is no usable number"


def stale_after_s(scrape_interval_s: float) -> float:
    """How old the newest sample may be before it is no longer shown as now."""
    return max(STALE_AFTER_S, STALE_INTERVALS * scrape_interval_s)


def steps(start_s: float, end_s: float, step_s: float) -> list[float]:
    """start, start + step, … up to end; step is kept above zero."""
    step_s = max(step_s, 0.001)
    return [start_s + i * step_s for i in range(int((end_s - start_s) / step_s + 1e-9) + 1)]


def quantile_answer(
    q: float, counts: Mapping[float, float], query: str, window_s: float, at_s: float
) -> Reading:
    """A Reading of bucket increases."""
    found = windows.quantile(q, counts)
    if found is None:
        reason = "the histogram has no +Inf bucket or no finite one"
        return Reading(Outcome.NO_DATA, query=query, window_s=window_s, at_s=at_s, reason=reason)
    reading = answer(found.value, query, window_s, found.observations, at_s)
    if not reading.ok:
        return reading
    return replace(reading, bound=found.bound, bucket=found.bucket)


def bucket_bound(text: str) -> float | None:
    """A bucket's upper bound; None for what is no number."""
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def answer(
    value: float | None, query: str, window_s: float, samples: float, at_s: float
) -> Reading:
    """NaN is 0/0: no traffic, never a number."""
    samples = round(finite(samples) or 0)
    if value is None or math.isnan(value):
        reason = "nothing was observed"
        return Reading(Outcome.NO_TRAFFIC, None, query, window_s, samples, at_s, reason=reason)
    if finite(value) is None:
        return Reading(Outcome.NO_DATA, None, query, window_s, samples, at_s, reason=NO_NUMBER)
    return Reading(Outcome.VALUE, value, query, window_s, samples, at_s)


def stale(query: str, window_s: float, newest_s: float, now_s: float) -> Reading:
    reason = f"the newest sample is {max(0.0, now_s - newest_s):.0f} s old"
    return Reading(Outcome.STALE, query=query, window_s=window_s, at_s=newest_s, reason=reason)
