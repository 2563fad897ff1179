"""Answers every question of a MetricSource from a SeriesStore: scraped or recorded alike.

A subclass says what time it is and how the target does; this module keeps the five outcomes apart.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping

from storage.sources import promql, windows
from storage.sources.answers import (
    NO_NUMBER,
    answer,
    bucket_bound,
    quantile_answer,
    stale,
    stale_after_s,
    steps,
)
from storage.sources.base import (
    MIN_WINDOW_INTERVALS,
    Agg,
    Labels,
    MetricSource,
    Outcome,
    RangeKind,
    Reading,
    SourceStatus,
    Wanted,
)
from storage.sources.exposition import STARTED, SeriesId, fold
from storage.sources.folding import fold_replicas, part_of, peaks, summed
from storage.sources.store import Series, SeriesStore
from storage.sources.windows import finite


class WindowedSource(ABC):
    """Base of ScrapeSource and RecordedSource. Windows shorter than four scrapes are widened."""

    def __init__(self, scrape_interval_s: float, labels: Labels | None = None) -> None:
        self.scrape_interval_s = scrape_interval_s
        self._labels = dict(labels or {})
        self._store = SeriesStore()
        self._lock = threading.Lock()

    # What a subclass says.

    @abstractmethod
    def _now_s(self) -> float: ...

    def _fault(self) -> tuple[Outcome, str] | None:
        """Why the newest attempt brought nothing; None when it brought metrics."""
        return None

    # The questions.

    def at_once(self, wanted: Wanted) -> MetricSource:
        """All is in memory already."""
        return self.over(wanted.window_s)

    def over(self, window_s: float) -> MetricSource:
        """There is nothing that reaches further."""
        return self

    def status(self) -> SourceStatus:
        now_s = self._now_s()
        fault = self._fault()
        with self._lock:
            newest_s, began_s = self._store.succeeded_s, self._store.began_s
            starts_s = (s.values[-1] for s in self._store.find(STARTED))
            start_s = finite(fold(starts_s, "max"))
        age_s = None if newest_s is None else max(0.0, now_s - newest_s)
        up = fault is None and age_s is not None
        watched_s = (
            None if began_s is None else max(0.0, min(now_s - began_s, self._store.horizon_s))
        )
        reason = fault[1] if fault else ""
        return SourceStatus(up, age_s, start_s, self.scrape_interval_s, reason, watched_s)

    def names(self) -> frozenset[str]:
        self._now_s()
        with self._lock:
            return self._store.names()

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        self._now_s()
        with self._lock:
            found = list(self._store.current(name, self._merged(name, labels)))
            if not found:  # of the process, so without a label that tells its models apart
                found = list(self._store.current(name, labels))
        return dict(found[0][0].id.labels) if found else None

    def gauge(self, name: str, labels: Labels | None = None, agg: Agg = "max") -> Reading:
        wanted = self._merged(name, labels)
        query = promql.gauge(name, wanted, agg)
        now_s = self._now_s()
        with self._lock:
            newest_s = self._store.newest_s or 0.0
            found = self._current(name, wanted)
            if not found:
                return self._nothing(query, 0.0, name, wanted)
        if now_s - newest_s > stale_after_s(self.scrape_interval_s):
            return stale(query, 0.0, newest_s, now_s)
        return answer(fold_replicas(found, agg), query, 0.0, len(found), newest_s)

    def rate(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(name, labels)
        return self._grown(promql.rate(name, window_s, wanted), name, window_s, wanted, window_s)

    def increase(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(name, labels)
        return self._grown(promql.increase(name, window_s, wanted), name, window_s, wanted, 1.0)

    def mean(self, histogram: str, window_s: float, labels: Labels | None = None) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(histogram, labels)
        query = promql.mean(histogram, window_s, wanted)
        now_s = self._now_s()
        with self._lock:
            total = self._increase(f"{histogram}_sum", window_s, now_s, wanted)
            count = self._increase(f"{histogram}_count", window_s, now_s, wanted)
            if total is None or count is None:
                return self._nothing(query, window_s, f"{histogram}_count", wanted)
        value = total.value / count.value if count.value else math.nan
        return answer(value, query, window_s, count.value, now_s)

    def quantile(
        self, histogram: str, q: float, window_s: float, labels: Labels | None = None
    ) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(histogram, labels)
        query = promql.quantile(histogram, q, window_s, wanted)
        now_s = self._now_s()
        with self._lock:
            counts = self._buckets(histogram, window_s, now_s, wanted)
            if not counts:
                return self._nothing(query, window_s, f"{histogram}_bucket", wanted)
        return quantile_answer(q, counts, query, window_s, now_s)

    def breakdown(
        self, name: str, by: str, window_s: float | None = None, labels: Labels | None = None
    ) -> dict[str, Reading]:
        wanted = self._merged(name, labels)
        wide_s = None if window_s is None else self._wide(window_s)
        query = promql.breakdown(name, by, wide_s, wanted)
        now_s = self._now_s()
        with self._lock:
            if wide_s is None:
                return self._gauges_by(name, by, wanted, query, now_s)
            return self._increases_by(name, by, wanted, query, now_s, wide_s)

    def range(
        self,
        kind: RangeKind,
        name: str,
        *,
        start_s: float,
        end_s: float,
        step_s: float,
        window_s: float = 60.0,
        q: float = 0.95,
        labels: Labels | None = None,
        agg: Agg = "max",
    ) -> list[tuple[float, float | None]]:
        self._now_s()
        window_s, wanted = self._wide(window_s), self._merged(name, labels)
        with self._lock:
            return [
                (at_s, self._point(kind, name, at_s, window_s, q, wanted, agg))
                for at_s in steps(start_s, end_s, step_s)
            ]

    def close(self) -> None:  # noqa: B027 (a recording holds nothing; a scraper overrides it)
        """Nothing to release here."""

    # How they are answered; all below is called with the lock held.

    def _grown(
        self, query: str, name: str, window_s: float, wanted: Mapping[str, str], divisor: float
    ) -> Reading:
        now_s = self._now_s()
        with self._lock:
            found = self._increase(name, window_s, now_s, wanted)
            if found is None:
                return self._nothing(query, window_s, name, wanted)
        return answer(found.value / divisor, query, window_s, found.samples, now_s)

    def _increase(
        self, name: str, window_s: float, end_s: float, wanted: Mapping[str, str]
    ) -> windows.Increase | None:
        return summed(self._store.find(name, wanted), end_s - window_s, end_s)

    def _buckets(
        self, histogram: str, window_s: float, end_s: float, wanted: Mapping[str, str]
    ) -> dict[float, float]:
        counts: dict[float, float] = {}
        for series in self._store.find(f"{histogram}_bucket", wanted):
            bound = bucket_bound(series.id.labels.get("le", ""))
            found = windows.increase(series.times_s, series.values, end_s - window_s, end_s)
            if found is not None and bound is not None:
                counts[bound] = counts.get(bound, 0.0) + found.value
        return counts

    def _gauges_by(
        self, name: str, by: str, wanted: Mapping[str, str], query: str, now_s: float
    ) -> dict[str, Reading]:
        newest_s = self._store.newest_s or 0.0
        groups: dict[str, list[tuple[SeriesId, float]]] = {}
        for series, value in self._current(name, wanted):
            groups.setdefault(part_of(series.labels, by), []).append((series, value))
        if now_s - newest_s > stale_after_s(self.scrape_interval_s):
            return {key: stale(query, 0.0, newest_s, now_s) for key in groups}
        return {
            key: answer(fold_replicas(found, "sum"), query, 0.0, len(found), newest_s)
            for key, found in groups.items()
        }

    def _increases_by(
        self,
        name: str,
        by: str,
        wanted: Mapping[str, str],
        query: str,
        now_s: float,
        window_s: float,
    ) -> dict[str, Reading]:
        groups: dict[str, list[Series]] = {}
        for series in self._store.find(name, wanted):
            groups.setdefault(part_of(series.id.labels, by), []).append(series)
        found = {k: summed(group, now_s - window_s, now_s) for k, group in groups.items()}
        return {
            key: answer(grown.value, query, window_s, grown.samples, now_s)
            for key, grown in found.items()
            if grown is not None
        }

    def _point(
        self,
        kind: RangeKind,
        name: str,
        at_s: float,
        window_s: float,
        q: float,
        wanted: Mapping[str, str],
        agg: Agg,
    ) -> float | None:
        if kind == "gauge":
            return finite(fold_replicas(self._current(name, wanted, at_s), agg))
        if kind == "peak":
            found = peaks(self._store.peaks(name, wanted), at_s - window_s, at_s)
            return finite(fold_replicas(found, agg))
        if kind == "quantile":
            at = windows.quantile(q, self._buckets(name, window_s, at_s, wanted))
            return finite(at.value) if at else None
        if kind == "rate":
            grown = self._increase(name, window_s, at_s, wanted)
            return finite(grown.value / window_s) if grown else None
        total = self._increase(f"{name}_sum", window_s, at_s, wanted)
        count = self._increase(f"{name}_count", window_s, at_s, wanted)
        return finite(total.value / count.value) if total and count and count.value else None

    def _nothing(
        self, query: str, window_s: float, name: str, wanted: Mapping[str, str]
    ) -> Reading:
        """Why there is no answer: not reachable, exported once, too few samples, or never."""
        fault = self._fault()
        if fault is not None:
            return Reading(fault[0], query=query, window_s=window_s, reason=fault[1])
        found = self._store.find(name, wanted)
        newest_s = max((series.times_s[-1] for series in found), default=None)
        if newest_s is None:
            return Reading(
                Outcome.NO_DATA, query=query, window_s=window_s, reason=f"{name} is not exported"
            )
        if any(self._store.is_fresh(series) for series in found):
            unusable = any(finite(series.values[-1]) is None for series in found)
            reason = NO_NUMBER if unusable else "fewer than two samples in the window yet"
            return Reading(Outcome.NO_DATA, None, query, window_s, 1, newest_s, reason=reason)
        return stale(query, window_s, newest_s, self._store.newest_s or newest_s)

    def _current(
        self, name: str, wanted: Labels, at_s: float | None = None
    ) -> list[tuple[SeriesId, float]]:
        return [(series.id, value) for series, value in self._store.current(name, wanted, at_s)]

    def _merged(self, name: str, labels: Labels | None) -> dict[str, str]:
        return self._own(name) | dict(labels or {})

    def _own(self, name: str) -> dict[str, str]:
        """The labels that narrow every question, as far as series of that name carry them."""
        return self._labels

    def _wide(self, window_s: float) -> float:
        return max(window_s, MIN_WINDOW_INTERVALS * self.scrape_interval_s)
