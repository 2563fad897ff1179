"""Several targets' own pages as one source: each is scraped by itself, and every series carries its
target's `instance`, as Prometheus would have it.

Invariant: a target that does not answer costs only its own figures; status() names it and says why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from storage.errors import StorageError
from storage.sources.base import Agg, Labels, MetricSource, RangeKind, Reading, SourceStatus, Wanted
from storage.sources.exposition import STARTED
from storage.sources.fetch import metrics_url
from storage.sources.gathered import (
    DEVICE_PREFIX,
    ENGINES,
    GatheredSource,
    GatheredStore,
)
from storage.sources.joined import JoinedPoints, of_target
from storage.sources.keeper import FaultLog
from storage.sources.longterm import HistorySource
from storage.sources.matrix import Matrix
from storage.sources.scrape import ScrapeSource, history_beyond
from storage.sources.store import HORIZON_S

if TYPE_CHECKING:
    from storage.history import History


class ScrapedTargets:
    """urls: base or /metrics URLs, one of them at least an engine's; a dcgm-exporter's on the same
    host belongs to it. Raises StorageError where two are the same target.

    history: gives the History of the target at a URL, as it does where that one is watched alone.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        scrape_interval_s: float = 5.0,
        labels: Labels | None = None,
        history: Callable[[str], History] | None = None,
        read_only: bool = False,
    ) -> None:
        self._labels = dict(labels or {})
        names, told = instances(urls), FaultLog()
        self._scrapes = {
            name: ScrapeSource(
                url, scrape_interval_s=scrape_interval_s, read_only=read_only, told=told,
                history=None if history is None else partial(history, url),
            )
            for name, url in zip(names, urls, strict=True)
        }  # fmt: skip
        self.scrape_interval_s = next(iter(self._scrapes.values())).scrape_interval_s
        self._made: tuple[tuple[float | None, ...], GatheredStore, dict[str, str]] | None = None

    def close(self) -> None:
        for scrape in self._scrapes.values():
            scrape.close()

    def at_once(self, wanted: Wanted) -> MetricSource:
        look = self._look()
        return self._beyond(look, wanted.window_s) or look

    def over(self, window_s: float) -> MetricSource:
        return self._beyond(self._look(), window_s) or self

    def _beyond(self, look: GatheredSource, window_s: float) -> HistorySource | None:
        held_s = look.status().watched_s
        held_s = HORIZON_S if held_s is None else held_s
        return history_beyond(look, window_s, held_s, self._kept)

    def _kept(self, window_s: float) -> JoinedPoints | None:
        """What is kept of all of them; None where that of one cannot be read."""
        parts = {name: scrape.kept(window_s) for name, scrape in self._scrapes.items()}
        known = {name: part for name, part in parts.items() if part is not None}
        return JoinedPoints(known) if len(known) == len(parts) else None

    def _look(self) -> GatheredSource:
        """All that is in memory, as of now."""
        tried = tuple(scrape.tried_s for scrape in self._scrapes.values())
        if self._made is None or self._made[0] != tried:
            self._made = (tried, *self._gather())
        _, store, faults = self._made
        silent = "; ".join(f"{n}: {why}" for n, why in faults.items())
        fault = "" if store.targets else silent or "none exports an engine's metrics"
        return GatheredSource(
            store, time.time(), self.scrape_interval_s, self._labels, fault, reach_s=HORIZON_S,
            why=faults,
        )  # fmt: skip

    def _gather(self) -> tuple[GatheredStore, dict[str, str]]:
        """(the samples of all, by instance why the newest scrape of it brought nothing)."""
        own: Matrix = []
        others: Matrix = []
        faults = {}
        for name, scrape in self._scrapes.items():
            series, up, fault = scrape.held(*ENGINES, DEVICE_PREFIX, STARTED)
            if up:
                others.append(({"__name__": "up", "instance": name}, up))
            if fault:
                faults[name] = fault
            for labels, points in series:
                device = labels["__name__"].startswith(DEVICE_PREFIX)
                (others if device else own).append((of_target(labels, name), points))
        return GatheredStore(own, others), faults

    # The questions, of one look each.

    def status(self) -> SourceStatus:
        return self._look().status()

    def names(self) -> frozenset[str]:
        return self._look().names()

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        return self._look().info(name, labels)

    def gauge(self, name: str, labels: Labels | None = None, agg: Agg = "max") -> Reading:
        return self._look().gauge(name, labels, agg)

    def rate(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        return self._look().rate(name, window_s, labels)

    def increase(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        return self._look().increase(name, window_s, labels)

    def mean(self, histogram: str, window_s: float, labels: Labels | None = None) -> Reading:
        return self._look().mean(histogram, window_s, labels)

    def quantile(
        self, histogram: str, q: float, window_s: float, labels: Labels | None = None
    ) -> Reading:
        return self._look().quantile(histogram, q, window_s, labels)

    def breakdown(
        self, name: str, by: str, window_s: float | None = None, labels: Labels | None = None
    ) -> dict[str, Reading]:
        return self._look().breakdown(name, by, window_s, labels)

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
        return self._look().range(
            kind, name, start_s=start_s, end_s=end_s, step_s=step_s, window_s=window_s, q=q,
            labels=labels, agg=agg,
        )  # fmt: skip


def check_labels(urls: Sequence[str], labels: Labels) -> None:
    """Raises StorageError for a label that scraped series never carry: what Prometheus adds; of
    several targets, each has its instance."""
    added = {"job"} if len(urls) > 1 else {"job", "instance"}
    if urls and (own := added & labels.keys()):
        raise StorageError(
            f"--label {min(own)}: Prometheus adds that one; with --url give one of the server's own"
        )


def instances(urls: Sequence[str]) -> list[str]:
    """A name for each target: `a:8000`, or where several are behind one address, `gw/a` and `gw/b`.
    Raises FetchError for what is no address, StorageError where two are the same target."""
    names = [instance_of(url) for url in urls]
    shared = Counter(names)
    names = [
        name + _path(url) if shared[name] > 1 else name
        for name, url in zip(names, urls, strict=True)
    ]
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise StorageError(f"{', '.join(twice)} is given twice: give each target once")
    return names


def instance_of(url: str) -> str:
    """`http://a:8000/metrics` → `a:8000`. Raises FetchError for what is no address."""
    return urlsplit(metrics_url(url)).netloc


def _path(url: str) -> str:
    parts = urlsplit(metrics_url(url))
    path = parts.path.removesuffix("/metrics")
    return f"{path}?{parts.query}" if parts.query else path
