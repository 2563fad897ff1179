"""Reads the target's metrics before, during and after a run.

From the target's own /metrics: scraped just before and just after, and every few seconds in a
thread between. From Prometheus: asked afterwards, once it has scraped the end of the run.
Invariant: a server without metrics, or one that stops answering, costs the run only these figures.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from storage.errors import StorageError
from storage.sources import Exposition, scrape_once
from storage.sources.base import Agg
from storage.sources.exposition import STARTED
from storage.sources.folding import fold_replicas
from tuner.server_side.increases import COUNTED, ServerSide
from tuner.server_side.series import COUNTERS, FOLDED, GAUGES, MOST_POINTS, Column, Series, thinned

INTERVAL_S = 2.0
SAME_START_S = 1.0
WAIT_FOR_SCRAPE = 1.5
"""Prometheus is asked this many of its scrape intervals after the end, so that it has seen it."""


@dataclass(frozen=True, slots=True)
class PrometheusTarget:
    """A Prometheus server and the labels of the measured target among its series."""

    url: str
    labels: Mapping[str, str]


class Watch(Protocol):
    """Begins when made; end() is called when the load has ended, result() after that."""

    def end(self) -> None: ...

    def result(self, began_unix_s: float, *, wait: bool = True) -> ServerSide | None:
        """None where nothing is known. began_unix_s: zero of the records' clock. wait False: only
        what is known by now, for someone who has pressed Ctrl-C."""
        ...


@contextlib.contextmanager
def watching(base_url: str, prometheus: PrometheusTarget | None = None) -> Iterator[Watch]:
    """Watch the server at base_url for the length of the block."""
    watch: Watch = _Asked(prometheus) if prometheus is not None else _Scraped(base_url)
    try:
        yield watch
    finally:
        watch.end()


def prometheus_problem(prometheus: PrometheusTarget) -> str:
    """Why nothing can be read from it now; "" where it scrapes the target."""
    from storage.sources.prometheus import PrometheusSource  # it loads pandas

    with contextlib.closing(PrometheusSource(prometheus.url, labels=prometheus.labels)) as source:
        status = source.status()
    return "" if status.up else status.reason


def observe(base_url: str) -> Exposition | None:
    """The target's metrics now; None when it exports none."""
    try:
        return scrape_once(base_url)
    except StorageError:
        return None


class _Scraped:
    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._scrapes: list[Exposition] = []
        self._interval_s = INTERVAL_S
        self._before = observe(base_url)
        self._after: Exposition | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server-watch", daemon=True)
        if self._before is not None:
            self._thread.start()

    def end(self) -> None:
        if self._before is None or self._stop.is_set():
            return
        self._stop.set()
        self._after = observe(self._base_url)
        self._thread.join()

    def result(self, began_unix_s: float, *, wait: bool = True) -> ServerSide | None:
        found = ServerSide.between(self._before, self._after)
        if found is None or self._before is None or self._after is None:
            return None
        scrapes = [self._before, *self._scrapes, self._after]
        counters = [tuple(_count(s, names) for s in scrapes) for names in COUNTERS.values()]
        born = [scrape.value(STARTED) for scrape in scrapes]
        if _began_anew(counters, born):
            found = ServerSide.of_restart()
        series = _series(scrapes, began_unix_s)
        return replace(found, source=f"{self._base_url}/metrics before and after", series=series)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            scrape = observe(self._base_url)
            if scrape is None:
                continue
            self._scrapes.append(_needed(scrape))
            if len(self._scrapes) > MOST_POINTS:
                self._scrapes, self._interval_s = thinned(self._scrapes), 2 * self._interval_s


class _Asked:
    def __init__(self, prometheus: PrometheusTarget) -> None:
        from storage.sources.prometheus import PrometheusSource  # it loads pandas

        self._prometheus = prometheus
        self._source = PrometheusSource(prometheus.url, labels=prometheus.labels)
        self._began_s = time.time()
        self._ended_s = self._began_s

    def end(self) -> None:
        self._ended_s = time.time()

    def result(self, began_unix_s: float, *, wait: bool = True) -> ServerSide | None:
        try:
            return self._result(began_unix_s) if wait else None
        except StorageError:
            return None
        finally:
            self._source.close()

    def _result(self, began_unix_s: float) -> ServerSide | None:
        from storage.sources.snapshot import prometheus_range, prometheus_snapshot

        if not self._source.status().up:
            return None
        interval_s = self._source.scrape_interval_s
        seen_s = self._ended_s + WAIT_FOR_SCRAPE * interval_s
        time.sleep(max(0.0, seen_s - time.time()))
        client, labels = self._source.client, self._prometheus.labels
        before, after = (
            prometheus_snapshot(client, COUNTED, at_s, labels) for at_s in (self._began_s, seen_s)
        )
        found = ServerSide.between(before, after) if before.values and after.values else None
        if found is None:
            return None
        step_s = max(interval_s, (self._ended_s - self._began_s) / MOST_POINTS)
        asked: list[tuple[tuple[str, ...], Agg]] = [
            *((names, FOLDED[field]) for field, names in GAUGES.items()),
            *((names, "sum") for names in COUNTERS.values()),
        ]
        columns = [
            prometheus_range(client, names, agg, self._began_s, self._ended_s, step_s, labels)
            for names, agg in asked
        ]
        at_s = tuple(self._began_s + i * step_s - began_unix_s for i in range(len(columns[0])))
        if _began_anew(columns[len(GAUGES) :]):
            found = ServerSide.of_restart()
        grown = [_since_start(column) for column in columns[len(GAUGES) :]]
        series = Series(at_s, *columns[: len(GAUGES)], *grown)
        source = f"Prometheus at {self._prometheus.url}, scraped every {interval_s:g} s"
        return replace(found, source=source, series=series)


def _needed(scrape: Exposition) -> Exposition:
    """Only what the series is made of: hundreds of scrapes are kept."""
    known = (*GAUGES.values(), *COUNTERS.values())
    wanted = (*(name for names in known for name in names), STARTED)
    values = {key: value for key, value in scrape.values.items() if key.startswith(wanted)}
    return Exposition(scrape.at_s, values)


def _series(scrapes: list[Exposition], began_unix_s: float) -> Series:
    gauges = [
        tuple(_gauge(s, names, FOLDED[field]) for s in scrapes) for field, names in GAUGES.items()
    ]
    counters = [tuple(_count(s, names) for s in scrapes) for names in COUNTERS.values()]
    at_s = tuple(scrape.at_s - began_unix_s for scrape in scrapes)
    return Series(at_s, *gauges, *(_since_start(column) for column in counters))


def _gauge(scrape: Exposition, names: tuple[str, ...], agg: Agg) -> float | None:
    return _first(fold_replicas(scrape.find(name), agg) for name in names)


def _count(scrape: Exposition, names: tuple[str, ...]) -> float | None:
    return _first(scrape.total(name) for name in names)


def _first(values: Iterable[float | None]) -> float | None:
    """The first that is exported."""
    return next((value for value in values if value is not None), None)


def _began_anew(counters: Iterable[Column], born: Sequence[float | None] = ()) -> bool:
    """Whether a counter fell, or the process is another one than before."""
    for column in counters:
        known = [value for value in column if value is not None and math.isfinite(value)]
        if any(late < early for early, late in pairwise(known)):
            return True
    starts = [value for value in born if value is not None]
    return bool(starts) and max(starts) - min(starts) > SAME_START_S


def _since_start(column: Column) -> Column:
    """Counts since the first known one."""
    start = next((value for value in column if value is not None), 0.0)
    return tuple(None if value is None else value - start for value in column)
