"""A target's counters as they stood at one time, from its own /metrics or out of Prometheus.

Both give an Exposition, so that the difference of two is the same arithmetic. Prometheus answers
with the newest sample at or before the time asked for: up to one scrape interval old.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.errors import StorageError
from storage.sources import promql
from storage.sources.answers import steps
from storage.sources.base import Agg, Labels
from storage.sources.exposition import Exposition
from storage.sources.matrix import Matrix
from storage.sources.promclient import PrometheusClient, QueryError

KEPT_LABELS = ("le", "finished_reason")


def prometheus_snapshot(
    client: PrometheusClient, names: Sequence[str], at_s: float, labels: Labels | None = None
) -> Exposition:
    """The series of names (samples' own names, with `_total`, `_bucket`…) at at_s, Unix seconds.

    Series are summed over all labels but KEPT_LABELS. Raises StorageError when Prometheus does not
    answer.
    """
    pattern = "|".join(names)
    selected = promql.selector("", labels, extra=f'__name__=~"{pattern}"')
    query = f"sum by (__name__, {', '.join(KEPT_LABELS)}) ({selected})"
    try:
        found = client.vector(query, at_s)
    except QueryError as fault:
        raise StorageError(str(fault)) from fault
    return Exposition(at_s, {_key(series): value for series, value in found})


def _key(labels: Labels) -> str:
    kept = [f'{name}="{labels[name]}"' for name in KEPT_LABELS if labels.get(name)]
    return labels["__name__"] + (f"{{{','.join(kept)}}}" if kept else "")


def prometheus_range(
    client: PrometheusClient,
    names: Sequence[str],
    agg: Agg,
    start_s: float,
    end_s: float,
    step_s: float,
    labels: Labels | None = None,
) -> tuple[float | None, ...]:
    """One value per step of the first of names that is exported, series folded with agg; None where
    there was none. Raises StorageError when Prometheus does not answer."""
    times_s = steps(start_s, end_s, step_s)
    found: Matrix = []
    for name in names:
        try:
            found = client.series(promql.folded(name, labels, agg), start_s, end_s, step_s)
        except QueryError as fault:
            raise StorageError(str(fault)) from fault
        if found:
            break
    by_step = {
        round((at_s - start_s) / step_s): value for _, points in found for at_s, value in points
    }
    return tuple(by_step.get(index) for index in range(len(times_s)))
