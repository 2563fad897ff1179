"""A Prometheus server as a metric source, spoken to through prometheus-api-client.

Its own session: three seconds, one retry, no proxies, explicit times in every query, label values
escaped, every malformed answer fenced. The arithmetic of windows is the server's; only the reading
of a quantile's buckets is shared with the scraper, so that both cut off at the same bound.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from storage.sources import promql
from storage.sources.base import Labels, Outcome, RangeKind, Reading, SourceStatus
from storage.sources.exposition import Agg, spellings
from storage.sources.store import HORIZON_S
from storage.sources.windowed import (
    MIN_WINDOW_INTERVALS,
    bucket_bound,
    finite,
    quantile_answer,
    stale_after_s,
    steps,
)

TIMEOUT_S = 3.0
NAMES_KEPT_S = 15.0
_PART = "slotune_part"
_ENGINES = '__name__=~"(vllm|sglang|slotune):.+"'
Vector = list[tuple[dict[str, str], float]]


class QueryError(Exception):
    """Prometheus did not answer or answered nonsense; the message says which."""


class _Client(PrometheusConnect):  # type: ignore[misc]
    """prometheus-api-client with a session of ours. Not for use from two threads at once."""

    def __init__(self, url: str) -> None:
        session = requests.Session()
        session.trust_env = False
        retry = Retry(total=1, backoff_factor=0.1, status_forcelist=[502, 503, 504])
        super().__init__(url=url, session=session, retry=retry, timeout=TIMEOUT_S)


class PrometheusSource:
    """labels: which series belong to the target, such as {"job": "vllm", "instance": "a:8000"}.

    scrape_interval_s is measured from `up` at the first status(); until then it is the one given.
    """

    def __init__(
        self, url: str, *, scrape_interval_s: float = 5.0, labels: Labels | None = None
    ) -> None:
        self.scrape_interval_s = max(scrape_interval_s, 0.1)
        self._url = url.rstrip("/")
        self._labels = dict(labels or {})
        self._lock = threading.Lock()
        self._client: _Client | None = None
        self._names: tuple[float, frozenset[str]] = (-math.inf, frozenset())

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def status(self) -> SourceStatus:
        now_s = time.time()
        try:
            targets = self._targets(now_s)
            samples = [v for labels, v in self._matrix("up", 120.0, now_s) if _of(labels, targets)]
            starts = self._vector(promql.gauge("process_start_time_seconds", self._labels, "max"))
        except QueryError as fault:
            return SourceStatus(False, None, None, self.scrape_interval_s, str(fault))
        start_s = starts[0][1] if starts else None
        if not samples:
            reason = "Prometheus scrapes no such target"
            return SourceStatus(False, None, start_s, self.scrape_interval_s, reason)
        newest = max(samples, key=lambda points: points[-1])
        if len(newest) > 1:
            spacing_s = (newest[-1][0] - newest[0][0]) / (len(newest) - 1)
            self.scrape_interval_s = round(spacing_s, 1) or spacing_s
        age_s = max(0.0, now_s - newest[-1][0])
        up = newest[-1][1] == 1
        reason = "" if up else "Prometheus cannot scrape the target (up = 0)"
        return SourceStatus(up, age_s, start_s, self.scrape_interval_s, reason)

    def names(self) -> frozenset[str]:
        try:
            return self._exported(time.time())
        except QueryError:
            return frozenset()

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        try:
            found = self._vector(promql.selector(name, self._merged(labels)))
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
            parts = self._parts(
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
            parts = self._parts(sums, counts, now_s=now_s)
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
            counts = _buckets(self._vector(buckets, now_s))
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
                found = self._vector(query, now_s)
                counts = {k.get(by, ""): v for k, v in self._vector(count, now_s)} if found else {}
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
        query = {
            "gauge": lambda: promql.gauge(name, wanted, "max"),
            "rate": lambda: promql.rate(name, window_s, wanted),
            "mean": lambda: promql.mean(name, window_s, wanted),
            "quantile": lambda: promql.bucket_increases(name, window_s, wanted),
        }[kind]()
        try:
            found = self._series(query, start_s, end_s, step_s)
        except QueryError:
            return [(at_s, None) for at_s in times_s]
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
                parts = self._parts(query, f"max(count_over_time({selected}))", now_s=now_s)
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
        ups = [value for labels, value in self._vector("up", now_s) if _of(labels, targets)]
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
            found = self._matrix(promql.selector(spelling, wanted), HORIZON_S, now_s)
            if found:
                return max(points[-1][0] for _, points in found)
        return None

    def _targets(self, now_s: float) -> set[tuple[str, str]] | None:
        """(job, instance) of the engines among the targets; None when none is found: all count."""
        selected = promql.selector("", self._labels, extra=_ENGINES)
        query = f"group by (job, instance) (last_over_time({selected}[{HORIZON_S:.0f}s]))"
        found = self._vector(query, now_s)
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
        found = self._call(
            lambda client: client.get_label_values(
                "__name__",
                params={"match[]": selected, "start": now_s - lookback_s, "end": now_s},
            )
        )
        names = frozenset(str(name) for name in found) if isinstance(found, list) else frozenset()
        self._names = (now_s, names)
        return names

    def _parts(self, *queries: str, now_s: float) -> list[float] | None:
        """The single values of several queries in one request; None unless all have one."""
        joined = " or ".join(
            f'label_replace({query}, "{_PART}", "{index}", "", "")'
            for index, query in enumerate(queries)
        )
        found = {labels.get(_PART): value for labels, value in self._vector(joined, now_s)}
        values = [found.get(str(index)) for index in range(len(queries))]
        return None if any(v is None for v in values) else [v for v in values if v is not None]

    def _vector(self, query: str, now_s: float | None = None) -> Vector:
        params = {"time": f"{time.time() if now_s is None else now_s:.3f}"}
        found = self._call(lambda client: client.custom_query(query, params=params))
        try:
            return [(dict(row["metric"]), float(row["value"][1])) for row in found]
        except (KeyError, TypeError, ValueError, IndexError) as fault:
            raise QueryError(f"{self._url} answers in an unknown form") from fault

    def _matrix(
        self, selected: str, window_s: float, now_s: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        query = f"{selected}[{promql.duration(window_s)}]"
        params = {"time": f"{now_s:.3f}"}
        return self._points(lambda client: client.custom_query(query, params=params))

    def _series(
        self, query: str, start_s: float, end_s: float, step_s: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        # The library rounds its times to whole seconds; params, applied last, carry the exact ones.
        start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, end_s))
        exact = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        step = f"{max(step_s, 0.001):.3f}"
        return self._points(
            lambda client: client.custom_query_range(query, start, end, step, params=exact)
        )

    def _points(
        self, ask: Callable[[_Client], Any]
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        found = self._call(ask)
        try:
            return [
                (dict(row["metric"]), [(float(t), float(v)) for t, v in row["values"]])
                for row in found
                if row["values"]
            ]
        except (KeyError, TypeError, ValueError) as fault:
            raise QueryError(f"{self._url} answers in an unknown form") from fault

    def _call(self, ask: Callable[[_Client], Any]) -> Any:
        try:
            with self._lock:
                if self._client is None:
                    self._client = _client(self._url)
                return ask(self._client)
        except requests.Timeout as fault:
            raise QueryError(f"{self._url}: no answer in {TIMEOUT_S:g} s") from fault
        except requests.ConnectionError as fault:
            raise QueryError(f"{self._url}: no Prometheus answers there") from fault
        except PrometheusApiClientException as fault:
            raise QueryError(f"{self._url}: {_refusal(str(fault))}") from fault
        except (requests.RequestException, KeyError, TypeError, ValueError) as fault:
            raise QueryError(f"{self._url} is not a Prometheus server") from fault

    def _merged(self, labels: Labels | None) -> dict[str, str]:
        return self._labels | dict(labels or {})

    def _wide(self, window_s: float) -> float:
        return max(window_s, MIN_WINDOW_INTERVALS * self.scrape_interval_s)


def _client(url: str) -> _Client:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise QueryError(f"{url!r} is not an address: give http://HOST:PORT of a Prometheus server")
    return _Client(url)


def _refusal(text: str) -> str:
    """The server's own words out of the library's message."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return str(json.loads(text[start : end + 1])["error"])
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:200]


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
