"""A Prometheus server as a metric source.

The arithmetic of windows is the server's; only the reading of a quantile's buckets is shared with
the scraper, so that both cut off at the same bound. An empty answer is looked into: target down,
series gone, too few samples, or never exported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from storage.sources import promql
from storage.sources.base import (
    MIN_WINDOW_INTERVALS,
    Labels,
    MetricSource,
    Outcome,
    RangeKind,
    Reading,
    SourceStatus,
    Wanted,
)
from storage.sources.exposition import Agg, spellings
from storage.sources.gathered import (
    DEVICE_PREFIX,
    GatheredSource,
    GatheredStore,
    scrape_interval,
    up_for_s,
)
from storage.sources.promclient import Matrix, PrometheusClient, QueryError, Vector
from storage.sources.store import HORIZON_S
from storage.sources.windowed import (
    bucket_bound,
    finite,
    quantile_answer,
    stale_after_s,
    steps,
)

NAMES_KEPT_S = 15.0
_ENGINES = '__name__=~"(vllm|sglang|slotune):.+"'


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
        self._names: tuple[float, frozenset[str]] = (-math.inf, frozenset())

    def close(self) -> None:
        self.client.close()

    def status(self) -> SourceStatus:
        now_s = time.time()
        try:
            targets = self._targets(now_s)
            samples = [
                v
                for labels, v in self.client.matrix(self._up(), HORIZON_S, now_s)
                if _of(labels, targets)
            ]
            starts = self.client.vector(
                promql.gauge("process_start_time_seconds", self._labels, "max")
            )
        except QueryError as fault:
            return SourceStatus(False, None, None, self.scrape_interval_s, str(fault))
        start_s = starts[0][1] if starts else None
        if not samples:
            reason = "Prometheus scrapes no such target"
            return SourceStatus(False, None, start_s, self.scrape_interval_s, reason)
        newest = max(samples, key=lambda points: points[-1])
        self.scrape_interval_s = scrape_interval(newest) or self.scrape_interval_s
        age_s = max(0.0, now_s - newest[-1][0])
        up = newest[-1][1] == 1
        reason = "" if up else "Prometheus cannot scrape the target (up = 0)"
        watched_s = up_for_s(newest, now_s, self.scrape_interval_s)
        return SourceStatus(up, age_s, start_s, self.scrape_interval_s, reason, watched_s)

    def at_once(self, wanted: Wanted) -> MetricSource:
        """Three requests, whatever is asked afterwards; a fourth where scrapes turn out so rare
        that the window must be wider."""
        now_s = time.time()
        others = promql.selector("", None, extra=f'__name__=~"up|{DEVICE_PREFIX}.+"')
        try:
            around = self.client.matrix(others, HORIZON_S, now_s)
            long = self._samples(wanted.long_names, max(wanted.long_s, HORIZON_S), now_s)
            short = wanted.names - wanted.long_names
            window_s = self._wide(wanted.window_s)
            store = GatheredStore([*self._samples(short, window_s, now_s), *long], around)
            source = GatheredSource(store, now_s, self.scrape_interval_s, self._labels)
            self.scrape_interval_s = source.scrape_interval_s
            if self._wide(window_s) > window_s:
                wide = self._samples(short, self._wide(window_s), now_s)
                store = GatheredStore([*wide, *long], around)
                source = GatheredSource(store, now_s, self.scrape_interval_s, self._labels)
            return source
        except QueryError as fault:
            empty = GatheredStore([], [])
            return GatheredSource(empty, now_s, self.scrape_interval_s, fault=str(fault))

    def over(self, window_s: float) -> MetricSource:
        """Prometheus keeps what it keeps."""
        return self

    def _samples(self, names: frozenset[str], window_s: float, now_s: float) -> Matrix:
        pattern = "|".join(sorted(names))
        selected = promql.selector("", self._labels, extra=f'__name__=~"{pattern}"')
        return self.client.matrix(selected, window_s, now_s)

    def names(self) -> frozenset[str]:
        try:
            return self._exported(time.time())
        except QueryError:
            return frozenset()

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        try:
            found = self.client.vector(promql.selector(name, self._merged(labels)))
        except QueryError:
            return None
        if not found:
            return None
        return {k: v for k, v in found[0][0].items() if k not in ("__name__", "job", "instance")}

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
                reason = f"the newest sample is {now_s - at_s:.0f} s old"
                return Reading(Outcome.STALE, query=query, at_s=at_s, reason=reason)
            return _reading(value, query, 0.0, round(series), at_s)

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
            return _reading(value, query, window_s, round(count), now_s)

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
                counts = (
                    {k.get(by, ""): v for k, v in self.client.vector(count, now_s)} if found else {}
                )
            except QueryError:
                return {}
            if found:
                return {
                    labels_.get(by, ""): _reading(
                        value,
                        query,
                        wide_s or 0.0,
                        round(counts.get(labels_.get(by, ""), 0)),
                        now_s,
                    )
                    for labels_, value in found
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
    ) -> list[tuple[float, float | None]]:
        window_s, wanted = self._wide(window_s), self._merged(labels)
        times_s = steps(start_s, end_s, step_s)
        try:
            for spelling in spellings(name):
                query = _range_query(kind, spelling, window_s, wanted)
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
                    return _reading(parts[0], query, window_s, round(parts[1]), now_s)
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
            return ask(now_s) or self._nothing(query, window_s, name, wanted, now_s)
        except QueryError as fault:
            reason = str(fault)
            return Reading(Outcome.UNREACHABLE, query=query, window_s=window_s, reason=reason)

    def _nothing(
        self, query: str, window_s: float, name: str, wanted: Mapping[str, str], now_s: float
    ) -> Reading:
        """Why the answer is empty: target down, exported once, too few samples, or never."""
        targets = self._targets(now_s)
        ups = [
            value for labels, value in self.client.vector(self._up(), now_s) if _of(labels, targets)
        ]
        if ups and max(ups) == 0:
            reason = "Prometheus cannot scrape the target (up = 0)"
            return Reading(Outcome.UNREACHABLE, query=query, window_s=window_s, reason=reason)
        newest_s = self._last_seen(name, wanted, now_s)
        if newest_s is None:
            reason = f"{name} is not exported"
            return Reading(Outcome.NO_DATA, query=query, window_s=window_s, reason=reason)
        age_s = now_s - newest_s
        if window_s and age_s <= stale_after_s(self.scrape_interval_s):
            reason = "fewer than two samples in the window yet"
            return Reading(Outcome.NO_DATA, None, query, window_s, 1, newest_s, reason=reason)
        reason = f"the newest sample is {age_s:.0f} s old"
        return Reading(Outcome.STALE, query=query, window_s=window_s, at_s=newest_s, reason=reason)

    def _last_seen(self, name: str, wanted: Mapping[str, str], now_s: float) -> float | None:
        for spelling in spellings(name):
            found = self.client.matrix(promql.selector(spelling, wanted), HORIZON_S, now_s)
            if found:
                return max(points[-1][0] for _, points in found)
        return None

    def _targets(self, now_s: float) -> set[tuple[str, str]] | None:
        """(job, instance) of the engines among the targets; None when none is found: all count."""
        selected = promql.selector("", self._labels, extra=_ENGINES)
        query = f"group by (job, instance) (last_over_time({selected}[{HORIZON_S:.0f}s]))"
        found = self.client.vector(query, now_s)
        return {(k.get("job", ""), k.get("instance", "")) for k, _ in found} or None

    def _exported(self, now_s: float) -> frozenset[str]:
        asked_s, names = self._names
        if now_s - asked_s < NAMES_KEPT_S:
            return names
        targets = self._targets(now_s)
        selected = [
            promql.selector("", {"job": job, "instance": instance})
            for job, instance in sorted(targets or ())
        ] or [promql.selector("", self._labels) if self._labels else '{__name__=~".+"}']
        lookback_s = max(2 * self.scrape_interval_s, 10.0)
        found = self.client.call(
            lambda connect: connect.get_label_values(
                "__name__",
                params={"match[]": selected, "start": now_s - lookback_s, "end": now_s},
            )
        )
        names = frozenset(str(name) for name in found) if isinstance(found, list) else frozenset()
        self._names = (now_s, names)
        return names

    def _up(self) -> str:
        """`up` of the targets asked for; Prometheus gives it no labels but these."""
        own = {k: v for k, v in self._labels.items() if k in ("job", "instance")}
        return promql.selector("up", own)

    def _merged(self, labels: Labels | None) -> dict[str, str]:
        return self._labels | dict(labels or {})

    def _wide(self, window_s: float) -> float:
        return max(window_s, MIN_WINDOW_INTERVALS * self.scrape_interval_s)


def _range_query(kind: RangeKind, name: str, window_s: float, wanted: Labels) -> str:
    if kind == "gauge":
        return promql.gauge(name, wanted, "max")
    if kind == "peak":
        return promql.peak(name, window_s, wanted)
    write = {"rate": promql.rate, "mean": promql.mean, "quantile": promql.bucket_increases}[kind]
    return write(name, window_s, wanted)


def _of(labels: Mapping[str, str], targets: set[tuple[str, str]] | None) -> bool:
    return targets is None or (labels.get("job", ""), labels.get("instance", "")) in targets


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


def _reading(value: float, query: str, window_s: float, samples: int, at_s: float) -> Reading:
    if math.isnan(value):
        reason = "nothing was observed"
        return Reading(Outcome.NO_TRAFFIC, None, query, window_s, samples, at_s, reason=reason)
    return Reading(Outcome.VALUE, value, query, window_s, samples, at_s)
