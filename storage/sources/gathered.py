"""What a Prometheus holds of one target at one moment, read in a few large queries.

The raw samples of every series asked for go into a SeriesStore, so that questions are answered by
the very arithmetic that the embedded scraper uses, and a whole diagnosis costs three requests.
Invariant: a series is current when it was in the newest scrape of its own target; targets are
scraped at different moments.
"""

from __future__ import annotations

import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from storage.sources.base import Labels, Outcome, SourceStatus
from storage.sources.exposition import SeriesId
from storage.sources.matrix import Matrix
from storage.sources.store import HORIZON_S, LOOKBACK_S, Series, SeriesStore
from storage.sources.windowed import WindowedSource

ENGINES = ("vllm:", "sglang:", "slotune:")
DEVICE_PREFIX = "DCGM_"
RECENT_SCRAPES = 20
"""The scrape interval is the median gap of this many: an older one may have been another."""

RECENT_INTERVALS = 3
"""A target that was asked within so many scrape intervals of the others still is one."""

DOWN = "Prometheus cannot scrape the target (up = 0)"

Target: TypeAlias = tuple[str, str]
"""(job, instance)."""


def target_of(labels: Labels) -> Target:
    return labels.get("job", ""), labels.get("instance", "")


class GatheredStore(SeriesStore):
    """Series of several targets, each with scrape times of its own (those of its `up`)."""

    def __init__(self, own: Matrix, others: Matrix) -> None:
        """own: series under the labels asked for. others: `up` and device metrics of everything,
        of which those of own's targets, or of the same hosts, are kept. asked: `up` of all."""
        super().__init__(float("inf"))
        self.targets = {
            target_of(labels) for labels, _ in own if labels["__name__"].startswith(ENGINES)
        }
        hosts = {_host(instance) for _, instance in self.targets}
        self.up: dict[Target, list[tuple[float, float]]] = {}
        self.asked: dict[Target, list[tuple[float, float]]] = {}
        self._scrapes: dict[Target, array[float]] = {}
        for labels, points in others:
            target = target_of(labels)
            if labels["__name__"] == "up":
                self.asked[target] = points
                self._scrapes[target] = array("d", (at_s for at_s, _ in points))
                if target in self.targets:
                    self.up[target] = points
            elif _host(target[1]) in hosts:
                self._keep(labels, points)
        for labels, points in own:
            if target_of(labels) in self.targets:
                self._keep(labels, points)

    def _keep(self, labels: dict[str, str], points: list[tuple[float, float]]) -> None:
        rest = {key: value for key, value in labels.items() if key != "__name__"}
        series = Series(SeriesId(labels["__name__"], rest))
        series.times_s.extend(at_s for at_s, _ in points)
        series.values.extend(value for _, value in points)
        self._series[str(len(self._series))] = series
        self._by_name.setdefault(series.id.name, []).append(series)
        if (target := target_of(labels)) not in self._scrapes:  # federated: no `up` of its own
            self._scrapes[target] = series.times_s

    def names(self) -> frozenset[str]:
        return frozenset(s.id.name for s in self._series.values() if self.is_fresh(s))

    def is_fresh(self, series: Series) -> bool:
        return series.times_s[-1] >= self._scrapes[target_of(series.id.labels)][-1]

    @property
    def newest_s(self) -> float | None:
        times_s = [self._scrapes[target][-1] for target in self.targets if target in self._scrapes]
        return max(times_s, default=None)

    @property
    def oldest_s(self) -> float | None:
        return min((series.times_s[0] for series in self._series.values()), default=None)

    def current(
        self, name: str, labels: Labels | None, at_s: float | None = None
    ) -> Iterator[tuple[Series, float]]:
        for series in self.find(name, labels):
            scrapes = self._scrapes[target_of(series.id.labels)]
            end = len(scrapes) if at_s is None else bisect_right(scrapes, at_s)
            if end == 0 or (at_s is not None and at_s - scrapes[end - 1] > LOOKBACK_S):
                continue
            index = bisect_left(series.times_s, scrapes[end - 1])
            if index < len(series.times_s) and series.times_s[index] == scrapes[end - 1]:
                yield series, series.values[index]


class GatheredSource(WindowedSource):
    """Answers as of now_s. fault: why Prometheus gave nothing; reach_s: how far back it is asked;
    why: by instance, why it cannot be scraped, where that is known."""

    def __init__(
        self,
        store: GatheredStore,
        now_s: float,
        scrape_interval_s: float,
        labels: Labels | None = None,
        fault: str = "",
        *,
        reach_s: float = 0.0,
        why: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scrape_interval_s, labels)
        self._store: GatheredStore = store
        self._at_s = now_s
        self._problem = fault
        self._reach_s = reach_s
        self._why = dict(why or {})
        if not fault and store.up:
            self._newest = newest_up(store.up.values())
            self.scrape_interval_s = scrape_interval(self._newest) or scrape_interval_s
            if all(points[-1][1] != 1 for points in store.up.values()):
                told = (f"{name}: {reason}" for name, reason in self._why.items())
                self._problem = "; ".join(told) or DOWN
        elif not fault and not store.targets:
            self._problem = "Prometheus scrapes no such target"

    def _now_s(self) -> float:
        return self._at_s

    def _fault(self) -> tuple[Outcome, str] | None:
        return (Outcome.UNREACHABLE, self._problem) if self._problem else None

    def status(self) -> SourceStatus:
        starts = [v for _, v in self._store.current("process_start_time_seconds", None)]
        newest_s = self._store.newest_s
        age_s = None if newest_s is None else max(0.0, self._at_s - newest_s)
        up = not self._problem and newest_s is not None
        return SourceStatus(
            up, age_s, max(starts, default=None), self.scrape_interval_s, self._problem,
            self._watched_s(), self._targets(),
        )  # fmt: skip

    def _targets(self) -> tuple[tuple[str, str], ...]:
        """Where there are several: the engines, and what is scraped beside them by the same job and
        does not answer now, which may be one."""
        newest_s = self._store.newest_s or 0.0
        jobs = {job for job, _ in self._store.targets} if self._names_targets() else set()
        told = {}
        for target, points in self._store.asked.items():
            at_s, answers = points[-1]
            now = at_s > newest_s - RECENT_INTERVALS * self.scrape_interval_s
            mine = target in self._store.targets or (target[0] in jobs and not answers)
            if now and mine and self._takes(target):
                told[target[1]] = "" if answers else self._why.get(target[1], DOWN)
        return tuple(sorted(told.items())) if len(told) > 1 else ()

    def _names_targets(self) -> bool:
        """Whether the labels asked for say which targets are meant, and nothing of their series."""
        return self._labels.keys() <= {"job", "instance"}

    def _takes(self, target: Target) -> bool:
        wanted = (self._labels.get(label) for label in ("job", "instance"))
        return all(value in (None, mine) for value, mine in zip(wanted, target, strict=True))

    def _watched_s(self) -> float | None:
        """As long as the targets are up; beyond what `up` tells, as far as samples reach."""
        if not self._store.up:
            return None
        watched_s = up_for_s(self._newest, self._at_s, self.scrape_interval_s)
        oldest_s = self._store.oldest_s
        if watched_s is not None or oldest_s is None:
            return watched_s
        missing_s = oldest_s - (self._at_s - self._reach_s)
        return self._at_s - oldest_s if missing_s > 2 * self.scrape_interval_s else None

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        found = super().info(name, labels)
        return found and {k: v for k, v in found.items() if k not in ("job", "instance")}


def newest_up(found: Iterable[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    """`up` of the target scraped last, of those that answer where any does."""
    return max(found, key=lambda points: (points[-1][1] == 1, points[-1][0]))


def scrape_interval(up: list[tuple[float, float]]) -> float | None:
    """Seconds between the newest scrapes, whatever gap lies among them; None of a single one."""
    recent = [at_s for at_s, _ in up[-RECENT_SCRAPES:]]
    if len(recent) < 2:
        return None
    spacing_s = statistics.median(after - before for before, after in pairwise(recent))
    return round(spacing_s, 1) or spacing_s


def up_for_s(up: list[tuple[float, float]], now_s: float, scrape_interval_s: float) -> float | None:
    """For how long the target has been up without a gap; None where `up` reaches no further."""
    began_s = up[-1][0]
    for at_s, value in reversed(up):
        if value != 1:
            break
        began_s = at_s
    reaches_back = began_s == up[0][0] and now_s - began_s > HORIZON_S - 2 * scrape_interval_s
    return None if reaches_back else max(0.0, now_s - began_s)


def _host(instance: str) -> str:
    return instance.rpartition(":")[0] or instance
