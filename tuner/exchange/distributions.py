"""Distribution summaries in GuideLLM's form: moments and percentiles of weighted values.

Percentiles are observed values (the smallest whose cumulated weight reaches the share), as ours
are. An empty distribution is all zeros with count 0, as GuideLLM writes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
SHARES = {
    "p001": 0.001, "p01": 0.01, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75,
    "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999,
}  # fmt: skip
MERGE_S = 1e-4
"""Events closer than this are one: two arrivals of the same packet make no infinite rate."""


def summary(values: Floats, weights: Floats | None = None, count: int | None = None) -> Any:
    """Of values with their weights (1 each); count: how many observations they stand for."""
    known = ~np.isnan(values)
    values = values[known]
    weights = np.ones(len(values)) if weights is None else weights[known]
    values, weights = values[weights > 0], weights[weights > 0]
    if len(values) == 0:
        zeros = ("mean", "median", "mode", "variance", "std_dev", "min", "max", "total_sum")
        empty = dict.fromkeys(zeros, 0.0) | {"count": 0, "percentiles": dict.fromkeys(SHARES, 0.0)}
        return empty | _nothing()
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    share = np.cumsum(weights) / weights.sum()
    mean = float((values * weights).sum() / weights.sum())
    variance = float((weights * (values - mean) ** 2).sum() / weights.sum())
    at = np.minimum(np.searchsorted(share, np.array([*SHARES.values()]) - 1e-12), len(values) - 1)
    percentiles = dict(zip(SHARES, values[at].tolist(), strict=True))
    distinct, where = np.unique(values, return_inverse=True)
    heaviest = int(np.argmax(np.bincount(where, weights=weights)))
    return {
        "mean": mean,
        "median": percentiles["p50"],
        "mode": float(distinct[heaviest]),
        "variance": variance,
        "std_dev": variance**0.5,
        "min": float(values[0]),
        "max": float(values[-1]),
        "count": len(values) if count is None else count,
        "total_sum": float((values * weights).sum()),
        "percentiles": percentiles,
    } | _nothing()


def rate(times_s: Floats, weights: Floats, window_s: tuple[float, float]) -> Any:
    """Of the rate between one event and the next, weighted by how long it held; its mean is the
    window's total per second."""
    start_s, end_s = window_s
    inside = (times_s >= start_s) & (times_s < end_s)
    order = np.argsort(times_s[inside], kind="stable")
    times_s, weights = times_s[inside][order], weights[inside][order]
    if len(times_s) == 0:
        return summary(np.empty(0))
    group = np.floor((times_s - start_s) / MERGE_S).astype(np.int64)
    _, first, which = np.unique(group, return_index=True, return_inverse=True)
    merged = np.bincount(which, weights=weights)
    edges = np.append(times_s[first], end_s)
    gaps = np.maximum(np.diff(np.concatenate([[start_s], edges[1:]])), 1e-9)
    return summary(merged / gaps, gaps, count=round(float(weights.sum())))


def concurrency(starts_s: Floats, ends_s: Floats, window_s: tuple[float, float]) -> Any:
    """Of how many were in flight, weighted by how long."""
    times_s, level = in_flight(starts_s, ends_s)
    if len(times_s) == 0:
        return summary(np.empty(0))
    edges = np.clip(np.append(times_s, window_s[1]), *window_s)
    held_s = np.diff(np.concatenate([[window_s[0]], edges]))
    levels = np.concatenate([[0.0], level])
    return summary(levels, held_s, count=len(starts_s))


def in_flight(starts_s: Floats, ends_s: Floats) -> tuple[Floats, Floats]:
    """(times of change, level from each on): ascending, one entry per event."""
    known = ~(np.isnan(starts_s) | np.isnan(ends_s))
    times = np.concatenate([starts_s[known], ends_s[known]])
    steps = np.concatenate([np.ones(int(known.sum())), -np.ones(int(known.sum()))])
    order = np.lexsort((-steps, times))
    return times[order], np.cumsum(steps[order])


def _nothing() -> dict[str, Any]:
    return {"pdf": None, "mean_ci": None, "percentile_cis": None}
