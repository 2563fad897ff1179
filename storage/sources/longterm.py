"""Windows longer than memory: the points of the history and what memory holds since, as one source.

Growth is unwound over resets before it is asked about, so that the arithmetic of windows is the
live source's. Edges are as fine as the points: a window ends at the newest scrape and begins at a
point, extrapolated as Prometheus does.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import lt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.history_points import (
    COARSE_S,
    FINE_S,
    KEPT_S,
    MAX_SERIES,
    Layout,
    Point,
    fold,
    is_counter,
    unwound,
)
from storage.sources.base import (
    Agg,
    Labels,
    MetricSource,
    Outcome,
    Reading,
    SourceStatus,
    Wanted,
)
from storage.sources.exposition import STARTED, series_id, spellings
from storage.sources.store import Series, SeriesStore
from storage.sources.windowed import WindowedSource

if TYPE_CHECKING:
    from storage.history import History

FINE_UP_TO_S = 6 * 3600.0
"""Windows up to here are answered from the fine points, longer ones from the coarse."""

GAP_POINTS = 2.5
"""A distance of more points than this is a gap in the watching."""


def kept(name: str) -> bool:
    """What the history holds: engines' own metrics (`vllm:…`), and when the process started."""
    return ":" in name or name == STARTED


def point_after(store: SeriesStore, since_s: float | None, keys: KeptKeys) -> Point | None:
    """The newest scrape as a point that follows Unix time since_s; None where none is newer, or
    nothing in it is kept."""
    at_s = store.succeeded_s
    if at_s is None or at_s != store.newest_s or (since_s is not None and at_s <= since_s):
        return None
    series = keys.of(store.fresh())
    if not series:
        return None
    parts = [_since(one, since_s) for one in series]
    values, peaks, lost = (np.array(part) for part in zip(*parts, strict=True))
    return Point(at_s, keys.layout, values, peaks, lost)


class KeptKeys:
    """The series that points hold; the layout stays one object while the page keeps its series.

    left_out: how many of the page's engine series are beyond MAX_SERIES.
    """

    def __init__(self) -> None:
        self._seen: frozenset[str] = frozenset()
        self.layout = Layout(())
        self.left_out = 0

    def of(self, fresh: Mapping[str, Series]) -> list[Series]:
        if fresh.keys() != self._seen:
            self._seen = frozenset(fresh)
            keys = [key for key, series in fresh.items() if kept(series.id.name)]
            self.layout = Layout(tuple(keys[:MAX_SERIES]))
            self.left_out = len(keys) - len(self.layout.keys)
        return [fresh[key] for key in self.layout.keys]


def _since(series: Series, since_s: float | None) -> tuple[float, float, float]:
    """(newest value, peak, lost in resets) after since_s; None: of all that is held.

    A fall counts from the sample that the newest point was made of; where another reader made it,
    that reader has counted what came before, and growth is told by the difference to its point.
    """
    times_s, first = series.times_s, 0
    if since_s is not None:
        first = len(times_s)
        while first and times_s[first - 1] > since_s:
            first -= 1
    values = series.values[first:]
    if not is_counter(series.id.name):
        return values[-1], max(values), 0.0
    if first and times_s[first - 1] == since_s:
        values = series.values[first - 1 :]
    lost = 0.0
    if any(map(lt, values[1:], values)):
        lost = sum(a for a, b in pairwise(values) if b < a)
    return values[-1], 0.0, lost


class _Run(NamedTuple):
    """Points in a row with the same series."""

    layout: Layout
    points: list[Point]


class KeptStore(SeriesStore):
    """Samples so many seconds apart. since_s: since when (Unix seconds) nothing that counted went
    unseen; None without a sample."""

    resolution_s: float
    since_s: float | None


class PointStore(KeptStore):
    """Points, oldest first, as series."""

    def __init__(self, points: Sequence[Point], resolution_s: float) -> None:
        super().__init__(math.inf, lookback_s=GAP_POINTS * resolution_s)
        self.resolution_s = resolution_s
        self.since_s = watched_since(points, resolution_s)
        self.attempts_s = array("d", (point.at_s for point in points))
        if points:
            self.began_s, self.succeeded_s = points[0].at_s, points[-1].at_s
        self._runs = _runs(points)
        self._keys: dict[str, list[str]] = {}
        for key in dict.fromkeys(key for run in self._runs for key in run.layout.keys):
            self._keys.setdefault(series_id(key).name, []).append(key)
        self._built: dict[tuple[str, bool], Series] = {}

    def find(self, name: str, labels: Labels | None = None) -> list[Series]:
        return self._found(name, labels, of_peaks=False)

    def peaks(self, name: str, labels: Labels | None = None) -> list[Series]:
        return self._found(name, labels, of_peaks=True)

    def _found(self, name: str, labels: Labels | None, *, of_peaks: bool) -> list[Series]:
        for spelling in spellings(name):
            if keys := self._keys.get(spelling):
                carrying = [key for key in keys if series_id(key).carries(labels)]
                return [self._series_of(key, of_peaks) for key in carrying]
        return []

    def _series_of(self, key: str, of_peaks: bool) -> Series:
        built = self._built.get((key, of_peaks))
        if built is None:
            built = self._built[key, of_peaks] = self._build(key, of_peaks)
        return built

    def _build(self, key: str, of_peaks: bool) -> Series:
        parts = [(run, run.layout.index[key]) for run in self._runs if key in run.layout.index]
        series = Series(series_id(key))
        series.times_s.extend(point.at_s for run, _ in parts for point in run.points)
        own = [(point, i) for run, i in parts for point in run.points]
        if of_peaks:
            series.values.extend(point.peaks[i] for point, i in own)
            return series
        values = np.array([point.values[i] for point, i in own])
        if is_counter(series.id.name):
            values = unwound(values, np.array([point.lost[i] for point, i in own]))
        series.values.frombytes(values.tobytes())
        return series


def _runs(points: Sequence[Point]) -> list[_Run]:
    groups: list[list[Point]] = []
    for point in points:
        if groups and groups[-1][-1].layout.digest == point.layout.digest:
            groups[-1].append(point)
        else:
            groups.append([point])
    return [_Run(group[0].layout, group) for group in groups]


def watched_since(points: Sequence[Point], resolution_s: float) -> float | None:
    """Since when (Unix seconds) nothing that counted went unseen: over a gap a counter tells its
    growth, unless the process began anew in it or does not tell when it began."""
    began_s = points[0].at_s if points else None
    for before, after in pairwise(points):
        gap = after.at_s - before.at_s > GAP_POINTS * resolution_s
        if gap and not _same_process(before, after):
            began_s = after.at_s
    return began_s


def _same_process(before: Point, after: Point) -> bool:
    """Known to be; a start that either lacks is no proof."""
    began_s = _start(before)
    return began_s is not None and began_s == _start(after)


def _start(point: Point) -> float | None:
    index = point.layout.index.get(STARTED)
    return None if index is None else float(point.values[index])


class HistorySource(WindowedSource):
    """What the live source and its history say of long windows, as of one moment.

    What is true now (names, gauges, whether it answers) is the live source's to say.
    """

    def __init__(self, live: WindowedSource, kept: KeptStore) -> None:
        super().__init__(kept.resolution_s, live._labels)
        self._live = live
        self._store: KeptStore = kept

    def at_once(self, wanted: Wanted) -> MetricSource:
        return self

    @property
    def watched_s(self) -> float | None:
        """For how long nothing that counts went unseen; None without a point."""
        since_s = self._store.since_s
        return None if since_s is None else self._now_s() - since_s

    def status(self) -> SourceStatus:
        return replace(self._live.status(), watched_s=self.watched_s or 0.0)

    def names(self) -> frozenset[str]:
        return self._live.names()

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        return self._live.info(name, labels)

    def gauge(self, name: str, labels: Labels | None = None, agg: Agg = "max") -> Reading:
        return self._live.gauge(name, labels, agg)

    def breakdown(
        self, name: str, by: str, window_s: float | None = None, labels: Labels | None = None
    ) -> dict[str, Reading]:
        if window_s is None:
            return self._live.breakdown(name, by, None, labels)
        return super().breakdown(name, by, window_s, labels)

    def _now_s(self) -> float:
        return self._live._now_s()

    def _fault(self) -> tuple[Outcome, str] | None:
        return self._live._fault()


class KeptPoints:
    """The history's points as far back as they were asked for; each is read once. Not locked."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._points: dict[int, list[Point]] = {FINE_S: [], COARSE_S: []}
        self._from_s: dict[int, float] = {FINE_S: math.inf, COARSE_S: math.inf}

    def back_to(self, start_s: float, resolution_s: int, now_s: float) -> list[Point]:
        """Those of one resolution after start_s; fine points that no coarse one holds yet stand
        behind the coarse ones as one. Raises StorageError."""
        self._drop(resolution_s, now_s - KEPT_S[resolution_s])
        start_s = max(start_s, now_s - KEPT_S[resolution_s])
        points = self._points[resolution_s]
        if start_s < self._from_s[resolution_s]:
            until_s = points[0].at_s - 1e-6 if points else None
            points[:0] = self.history.read(resolution_s, start_s, until_s)
            self._from_s[resolution_s] = start_s
        if not points or now_s - points[-1].at_s > resolution_s:
            self._read_on(points, resolution_s, start_s)
        found = [point for point in points if point.at_s > start_s]
        if resolution_s == COARSE_S:
            newest_s = found[-1].at_s if found else start_s
            if rest := self.back_to(newest_s, FINE_S, now_s):
                found.append(fold(rest))
        return found

    def _read_on(self, points: list[Point], resolution_s: int, start_s: float) -> None:
        """The newest slot again, which may have been joined with more, and what follows it."""
        after_s = points[-1].slot(resolution_s) * resolution_s - 1e-3 if points else start_s
        fresh = self.history.read(resolution_s, after_s)
        if fresh and points:
            del points[-1]
        points += fresh

    def _drop(self, resolution_s: int, before_s: float) -> None:
        points = self._points[resolution_s]
        while points and points[0].at_s < before_s:
            del points[0]
        self._from_s[resolution_s] = max(self._from_s[resolution_s], before_s)
