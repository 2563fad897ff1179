"""A Prometheus server as a metric source.

The arithmetic of windows is the server's; only the reading of a quantile's buckets is shared with
the scraper, so that both cut off at the same bound. Why an answer is empty, and how the target
does, promtargets.py finds out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from copy import copy

from storage.sources import promql
from storage.sources.answers import (
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
from storage.sources.exposition import spellings
from storage.sources.folding import part_of
from storage.sources.gathered import DEVICE_PREFIX, GatheredSource, GatheredStore, target_labels
from storage.sources.matrix import Matrix, Vector
from storage.sources.promclient import PrometheusClient, QueryError
from storage.sources.promtargets import PromTargets
from storage.sources.store import HORIZON_S
from storage.sources.windows import finite


class PrometheusSource:
    """labels: which series belong to the target, such as {"job": "vllm", "instance": "a:8000"}.

    scrape_interval_s is measured from `up` at the first status(); until then it is the one given.
    """

    def __init__(
        self, url: str, *, scrape_interval_s: float = 5.0, labels: Labels | None = None
    ) -> None:
        self.scrape_interval_s = max(scrape_interval_s, 0.1)
        self.client = PrometheusClient(url)
        self._labels = dict(labels or {})
        self._targets = PromTargets(self.client, self._labels)
        self._reach_s = HORIZON_S

    def close(self) -> None:
        self.client.close()

    def status(self) -> SourceStatus:
        try:
            found = self._targets.status(time.time(), self.scrape_interval_s, self._reach_s)
        except QueryError as fault:
            return SourceStatus(False, None, None, self.scrape_interval_s, str(fault))
        self.scrape_interval_s = found.scrape_interval_s
        return found

    def at_once(self, wanted: Wanted) -> MetricSource:
        """Three requests, whatever is asked afterwards; one more where labels tell the models of a
        process apart, and where scrapes turn out so rare that the window must be wider."""
        now_s = time.time()
        others = promql.selector("", None, extra=f'__name__=~"up|{DEVICE_PREFIX}.+"')
        try:
            around = self.client.matrix(others, HORIZON_S, now_s)
            long = self._samples(wanted.long_names, max(wanted.long_s, HORIZON_S), now_s)
            short = wanted.names - wanted.long_names
            window_s = self._wide(wanted.window_s)
            source = self._gathered(short, long, around, window_s, now_s)
            self.scrape_interval_s = source.scrape_interval_s
            if self._wide(window_s) > window_s:
                source = self._gathered(short, long, around, self._wide(window_s), now_s)
            return source
        except QueryError as fault:
            empty = GatheredStore([], [])
            return GatheredSource(empty, now_s, self.scrape_interval_s, fault=str(fault))

    def over(self, window_s: float) -> MetricSource:
        """Prometheus keeps what it keeps; how far back that is for this target, status() tells."""
        if window_s <= self._reach_s:
            return self
        longer = copy(self)
        longer._reach_s = window_s
        return longer

    def _samples(self, names: frozenset[str], window_s: float, now_s: float) -> Matrix:
        selected = self._targets.selectors(names)
        return [row for each in selected for row in self.client.matrix(each, window_s, now_s)]

    def _gathered(
        self, short: frozenset[str], long: Matrix, around: Matrix, window_s: float, now_s: float
    ) -> GatheredSource:
        own = [*self._samples(short, window_s, now_s), *long]
        by_model = target_labels(self._labels) != self._labels
        store, interval_s = GatheredStore(own, around, by_model=by_model), self.scrape_interval_s
        return GatheredSource(store, now_s, interval_s, self._labels, reach_s=window_s)

    def names(self) -> frozenset[str]:
        try:
            return self._targets.exported(time.time(), self.scrape_interval_s)
        except QueryError:
            return frozenset()

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        try:
            return self._targets.info(name, labels or {}, time.time())
        except QueryError:
            return None

    def gauge(self, name: str, labels: Labels | None = None, agg: Agg = "max") -> Reading:
        wanted = self._merged(labels)
        query = promql.gauge(name, wanted, agg)
        selected = promql.selector(name, wanted)

        def ask(now_s: float) -> Reading | None:
            parts = self.client.parts(
                query, f"count({selected})", f"max(timestamp({selected}))", now_s=now_s
            )
            if parts is None:
                return None
            value, series, at_s = parts
            if now_s - at_s > stale_after_s(self.scrape_interval_s):
                return stale(query, 0.0, at_s, now_s)
            return answer(value, query, 0.0, series, at_s)

        return self._fenced(ask, query, 0.0, name, wanted)

    def rate(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        return self._grown(promql.rate, name, window_s, labels)

    def increase(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        return self._grown(promql.increase, name, window_s, labels)

    def mean(self, histogram: str, window_s: float, labels: Labels | None = None) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(labels)
        query = promql.mean(histogram, window_s, wanted)
        sums = promql.increase(f"{histogram}_sum", window_s, wanted)
        counts = promql.increase(f"{histogram}_count", window_s, wanted)

        def ask(now_s: float) -> Reading | None:
            parts = self.client.parts(sums, counts, now_s=now_s)
            if parts is None:
                return None
            total, count = parts
            value = total / count if count else math.nan
            return answer(value, query, window_s, count, now_s)

        return self._fenced(ask, query, window_s, f"{histogram}_count", wanted)

    def quantile(
        self, histogram: str, q: float, window_s: float, labels: Labels | None = None
    ) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(labels)
        query = promql.quantile(histogram, q, window_s, wanted)
        buckets = promql.bucket_increases(histogram, window_s, wanted)

        def ask(now_s: float) -> Reading | None:
            counts = _buckets(self.client.vector(buckets, now_s))
            return quantile_answer(q, counts, query, window_s, now_s) if counts else None

        return self._fenced(ask, query, window_s, f"{histogram}_bucket", wanted)

    def breakdown(
        self, name: str, by: str, window_s: float | None = None, labels: Labels | None = None
    ) -> dict[str, Reading]:
        wanted = self._merged(labels)
        wide_s = None if window_s is None else self._wide(window_s)
        now_s = time.time()
        for spelling in spellings(name):
            query = promql.breakdown(spelling, by, wide_s, wanted)
            selected = promql.selector(spelling, wanted, wide_s)
            count = (
                f"count by ({by}) ({selected})"
                if wide_s is None
                else f"max by ({by}) (count_over_time({selected}))"
            )
            try:
                found = self.client.vector(query, now_s)
                counted = self.client.vector(count, now_s) if found else []
            except QueryError:
                return {}
            counts = {part_of(labels_, by): n for labels_, n in counted}
            parts = {part_of(labels_, by): value for labels_, value in found}
            if parts:
                return {
                    part: answer(value, query, wide_s or 0.0, counts.get(part, 0), now_s)
                    for part, value in parts.items()
                }
        return {}

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
        window_s, wanted = self._wide(window_s), self._merged(labels)
        times_s = steps(start_s, end_s, step_s)
        try:
            for spelling in spellings(name):
                query = promql.point(kind, spelling, window_s, wanted, agg)
                if found := self.client.series(query, start_s, end_s, step_s):
                    break
        except QueryError:
            found = []
        tables = [(labels_, _by_step(points, start_s, step_s)) for labels_, points in found]
        return [(at_s, _at(kind, tables, index, q)) for index, at_s in enumerate(times_s)]

    # How they are asked.

    def _grown(
        self,
        write: Callable[[str, float, Labels | None], str],
        name: str,
        window_s: float,
        labels: Labels | None,
    ) -> Reading:
        window_s, wanted = self._wide(window_s), self._merged(labels)

        def ask(now_s: float) -> Reading | None:
            for spelling in spellings(name):
                query = write(spelling, window_s, wanted)
                selected = promql.selector(spelling, wanted, window_s)
                parts = self.client.parts(query, f"max(count_over_time({selected}))", now_s=now_s)
                if parts is not None:
                    return answer(parts[0], query, window_s, parts[1], now_s)
            return None

        return self._fenced(ask, write(name, window_s, wanted), window_s, name, wanted)

    def _fenced(
        self,
        ask: Callable[[float], Reading | None],
        query: str,
        window_s: float,
        name: str,
        wanted: Mapping[str, str],
    ) -> Reading:
        now_s = time.time()
        try:
            if (found := ask(now_s)) is not None:
                return found
            interval_s = self.scrape_interval_s
            return self._targets.silence(name, wanted, query, window_s, interval_s, now_s)
        except QueryError as fault:
            reason = str(fault)
            return Reading(Outcome.UNREACHABLE, query=query, window_s=window_s, reason=reason)

    def _merged(self, labels: Labels | None) -> dict[str, str]:
        return self._labels | dict(labels or {})

    def _wide(self, window_s: float) -> float:
        return max(window_s, MIN_WINDOW_INTERVALS * self.scrape_interval_s)


def _buckets(found: Vector) -> dict[float, float]:
    counts = ((bucket_bound(labels.get("le", "")), value) for labels, value in found)
    return {bound: value for bound, value in counts if bound is not None}


def _by_step(points: list[tuple[float, float]], start_s: float, step_s: float) -> dict[int, float]:
    return {round((at_s - start_s) / step_s): value for at_s, value in points}


def _at(
    kind: RangeKind, tables: list[tuple[dict[str, str], dict[int, float]]], index: int, q: float
) -> float | None:
    there = [(labels, table[index]) for labels, table in tables if index in table]
    if not there:
        return None
    if kind != "quantile":
        return finite(there[0][1])
    counts = _buckets(there)
    return finite(quantile_answer(q, counts, "", 0.0, 0.0).value) if counts else None
