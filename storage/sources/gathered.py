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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from storage.sources.base import Labels, Outcome, SourceStatus
from storage.sources.exposition import STARTED, SeriesId
from storage.sources.matrix import Matrix
from storage.sources.store import HORIZON_S, LOOKBACK_S, Series, SeriesStore
from storage.sources.windowed import WindowedSource

ENGINES = ("vllm:", "sglang:", "slotune:")
DEVICE_PREFIX = "DCGM_"
RECENT_SCRAPES = 20
"""The scrape interval is the median gap of this many: an older one may have been another."""

RECENT_INTERVALS = 3
"""A target that was asked within so many of its scrape intervals of the others still is one."""

RECENT_S = 5.0
"""Nor is it given up sooner: an answer may take its time."""

DOWN = "Prometheus cannot scrape the target (up = 0)"

Target: TypeAlias = tuple[str, str]
"""(job, instance)."""

Points: TypeAlias = list[tuple[float, float]]
"""[(Unix seconds, value)] of one series, never empty."""


def target_of(labels: Labels) -> Target:
    return labels.get("job", ""), labels.get("instance", "")


def target_labels(labels: Labels) -> dict[str, str]:
    """Those of labels that Prometheus itself gives every series of a target."""
    return {key: value for key, value in labels.items() if key in ("job", "instance")}


def of_process(name: str) -> bool:
    """Is it told once for a whole process, without a label that tells its models apart?"""
    return name == STARTED or name.endswith("_info")


class GatheredStore(SeriesStore):
    """Series of several targets, each with scrape times of its own (those of its `up`)."""

    def __init__(self, own: Matrix, others: Matrix, *, by_model: bool = False) -> None:
        """own: series under the labels asked for. others: `up` and device metrics of everything,
        of which those of own's targets, or of the same hosts, are kept. asked: `up` of all.
        by_model: the labels tell a process' models apart, so that what it tells once proves none.
        """
        super().__init__(float("inf"))
        self.targets = {
            target_of(labels)
            for labels, _ in own
            if labels["__name__"].startswith(ENGINES)
            and not (by_model and of_process(labels["__name__"]))
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
        self.ended_s = self._ended()

    def _ended(self) -> dict[Target, float]:
        """When it became plain of a target (Unix seconds) that it is scraped no more."""
        until_s = zip(self._scrapes, asked_until_s(list(self._scrapes.values())), strict=True)
        newest_s = self.newest_s or 0.0
        return {target: at_s for target, at_s in until_s if at_s < newest_s}

    def _keep(self, labels: dict[str, str], points: list[tuple[float, float]]) -> None:
        rest = {key: value for key, value in labels.items() if key != "__name__"}
        series = Series(SeriesId(labels["__name__"], rest))
        series.times_s.extend(at_s for at_s, _ in points)
        series.values.extend(value for _, value in points)
        self._series[str(len(self._series))] = series
        self._by_name.setdefault(series.id.name, []).append(series)
        target = target_of(labels)
        if target not in self.asked:  # federated: no `up` of its own
            known = self._scrapes.setdefault(target, series.times_s)
            self._scrapes[target] = max(known, series.times_s, key=lambda times_s: times_s[-1])

    def names(self) -> frozenset[str]:
        return frozenset(s.id.name for s in self._series.values() if self.is_fresh(s))

    def is_fresh(self, series: Series) -> bool:
        target = target_of(series.id.labels)
        return target not in self.ended_s and series.times_s[-1] >= self._scrapes[target][-1]

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
            target = target_of(series.id.labels)
            if target in self.ended_s and (at_s is None or at_s > self.ended_s[target]):
                continue
            scrapes = self._scrapes[target]
            end = len(scrapes) if at_s is None else bisect_right(scrapes, at_s)
            if end == 0 or (at_s is not None and at_s - scrapes[end - 1] > LOOKBACK_S):
                continue
            index = bisect_left(series.times_s, scrapes[end - 1])
            if index < len(series.times_s) and series.times_s[index] == scrapes[end - 1]:
                yield series, series.values[index]


class GatheredSource(WindowedSource):
    """Answers as of now_s. fault: why Prometheus gave nothing; reach_s: how far back it is asked;
    why: by instance, why it cannot be scraped, where that is known: it then is one of those meant,
    whatever it exported before."""

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
            newest = newest_up(store.up.values())
            self.scrape_interval_s = scrape_interval(newest) or scrape_interval_s
            if newest[-1][1] != 1:
                told = (f"{name}: {reason}" for name, reason in self._why.items())
                self._problem = "; ".join(told) or DOWN
        elif not fault and not store.targets:
            self._problem = "Prometheus scrapes no such target"

    def _now_s(self) -> float:
        return self._at_s

    def _fault(self) -> tuple[Outcome, str] | None:
        return (Outcome.UNREACHABLE, self._problem) if self._problem else None

    def status(self) -> SourceStatus:
        starts = [v for _, v in self._store.current(STARTED, None)]
        newest_s = self._store.newest_s
        age_s = None if newest_s is None else max(0.0, self._at_s - newest_s)
        up = not self._problem and newest_s is not None
        return SourceStatus(
            up, age_s, max(starts, default=None), self.scrape_interval_s, self._problem,
            self._watched_s(), self._targets(),
        )  # fmt: skip

    def _targets(self) -> tuple[tuple[str, str], ...]:
        """Where there are several: the engines, what was given by name, and what is scraped beside
        engines by a job of theirs and does not answer now."""
        jobs, engines, told = self._jobs(), self._store.targets, {}
        for target, points in self._store.asked.items():
            answers, why = points[-1][1], self._why.get(target[1], "")
            mine = target in engines or why or (target[0] in jobs and not answers)
            asked = why or target not in self._store.ended_s
            if asked and mine and self._takes(target):
                told[target[1]] = "" if answers else why or DOWN
        return tuple(sorted(told.items())) if len(told) > 1 else ()

    def _jobs(self) -> set[str]:
        """Jobs whose every target that answers is an engine, so that a silent one must be too.
        Empty where the labels asked for say more than which targets are meant."""
        if target_labels(self._labels) != self._labels:
            return set()
        engines, asked = self._store.targets, self._store.asked
        others = {target[0] for target in asked if target not in engines and asked[target][-1][1]}
        return {job for job, _ in engines} - others

    def _takes(self, target: Target) -> bool:
        wanted = (self._labels.get(label) for label in ("job", "instance"))
        return all(value in (None, mine) for value, mine in zip(wanted, target, strict=True))

    def _watched_s(self) -> float | None:
        """As long as the targets are up; beyond what `up` tells, as far as samples reach."""
        if not self._store.up:
            return None
        watched_s = watched_for_s(self._store.up.values(), self._at_s, self.scrape_interval_s)
        oldest_s = self._store.oldest_s
        if watched_s is not None or oldest_s is None:
            return watched_s
        missing_s = oldest_s - (self._at_s - self._reach_s)
        return self._at_s - oldest_s if missing_s > 2 * self.scrape_interval_s else None

    def _own(self, name: str) -> dict[str, str]:
        """The store holds of devices those of the targets' hosts, whoever exports them."""
        if name.startswith(DEVICE_PREFIX):
            return {}
        return target_labels(self._labels) if of_process(name) else self._labels

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        found = super().info(name, labels)
        return found and {k: v for k, v in found.items() if k not in ("job", "instance")}


def newest_up(found: Iterable[Points]) -> Points:
    """`up` of the target scraped last, of those still scraped, and that answer where any does."""
    return max(_still_asked(found), key=lambda points: (points[-1][1] == 1, points[-1][0]))


def scrape_interval(up: Points) -> float | None:
    """Seconds between the newest scrapes, whatever gap lies among them; None of a single one."""
    return _pace_s([at_s for at_s, _ in up[-RECENT_SCRAPES:]])


def _pace_s(times_s: Sequence[float]) -> float | None:
    recent = times_s[-RECENT_SCRAPES:]
    if len(recent) < 2:
        return None
    spacing_s = statistics.median(after - before for before, after in pairwise(recent))
    return round(spacing_s, 1) or spacing_s


def asked_until_s(scrapes: Sequence[Sequence[float]]) -> list[float]:
    """Until when (Unix seconds) targets of these scrape times would be asked anew at the latest;
    of one that was asked once, by the pace of the slowest."""
    paces_s = [_pace_s(times_s) for times_s in scrapes]
    slowest_s = max(filter(None, paces_s), default=0.0)
    return [
        times_s[-1] + max(RECENT_INTERVALS * (pace_s or slowest_s), RECENT_S)
        for times_s, pace_s in zip(scrapes, paces_s, strict=True)
    ]


def _still_asked(found: Iterable[Points]) -> list[Points]:
    """`up` of the targets that were not taken out of the scrapes."""
    every = list(found)
    newest_s = max(points[-1][0] for points in every)
    until_s = asked_until_s([[at_s for at_s, _ in points[-RECENT_SCRAPES:]] for points in every])
    return [points for points, at_s in zip(every, until_s, strict=True) if at_s >= newest_s]


def watched_for_s(found: Iterable[Points], now_s: float, scrape_interval_s: float) -> float | None:
    """As long as that one of the targets that has been up longest; None as of up_for_s."""
    spans_s = [up_for_s(points, now_s, scrape_interval_s) for points in _still_asked(found)]
    known_s = [span_s for span_s in spans_s if span_s is not None]
    return max(known_s) if len(known_s) == len(spans_s) else None


def up_for_s(up: Points, now_s: float, scrape_interval_s: float) -> float | None:
    """For how long the target has been up without a gap; None where `up` reaches no further."""
    began_s = up[-1][0]
    for at_s, value in reversed(up):
        if value != 1:
            break
        began_s = at_s
    reaches_back = began_s == up[0][0] and now_s - began_s > HORIZON_S - 2 * scrape_interval_s
    return None if reaches_back else max(0.0, now_s - began_s)


def _host(instance: str) -> str:
    address = instance.partition("/")[0]
    return address.rpartition(":")[0] or address
