"""The last minutes of every series of one target, in memory.

Invariant: times of a series ascend. A scrape appends one float pair per series; what is older than
the horizon is dropped, and a series that has not been exported for that long goes with it.
Not locked: the owner does that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from storage.sources.base import Labels
from storage.sources.exposition import Exposition, SeriesId, series_id, spellings
from storage.sources.matrix import Matrix

HORIZON_S = 900.0
LOOKBACK_S = 300.0
_TRIM_EVERY = 32


@dataclass(slots=True)
class Series:
    id: SeriesId
    times_s: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def trim(self, before_s: float) -> None:
        gone = bisect_left(self.times_s, before_s)
        if gone:
            del self.times_s[:gone]
            del self.values[:gone]


class SeriesStore:
    """attempts_s: when a scrape was tried; a series absent from the newest one is stale.
    answered: for each of them, 1 where it brought metrics.

    began_s, succeeded_s: when the first and the newest scrape that brought metrics were made.
    """

    def __init__(self, horizon_s: float = HORIZON_S, lookback_s: float = LOOKBACK_S) -> None:
        self.horizon_s = horizon_s
        self.lookback_s = lookback_s
        self.attempts_s = array("d")
        self.answered = array("b")
        self.began_s: float | None = None
        self.succeeded_s: float | None = None
        self._series: dict[str, Series] = {}
        self._by_name: dict[str, list[Series]] = {}

    def add(self, exposition: Exposition) -> None:
        """A scrape that succeeded. Older than the newest one (the clock went back): ignored."""
        at_s = exposition.at_s
        if not self._attempt(at_s, answered=True):
            return
        self.began_s = at_s if self.began_s is None else self.began_s
        self.succeeded_s = at_s
        for key, value in exposition.values.items():
            series = self._series.get(key) or self._new(key)
            series.times_s.append(at_s)
            series.values.append(value)

    def miss(self, at_s: float) -> None:
        """A scrape that failed: every series is stale from here, as Prometheus marks it."""
        self._attempt(at_s, answered=False)

    def up_points(self) -> list[tuple[float, float]]:
        """Prometheus' `up`: at each attempt 1 where it brought metrics, else 0."""
        return list(zip(self.attempts_s, map(float, self.answered), strict=True))

    def matrix(self, *prefixes: str) -> Matrix:
        """Every series, or those whose name begins with one of prefixes, with all its samples, as a
        query of Prometheus gives them."""
        return [
            (
                {**series.id.labels, "__name__": series.id.name},
                list(zip(series.times_s, series.values, strict=True)),
            )
            for series in self._series.values()
            if series.id.name.startswith(prefixes or "")
        ]

    def names(self) -> frozenset[str]:
        """The names in the newest scrape."""
        newest_s = self.newest_s
        return frozenset(
            series.id.name for series in self._series.values() if series.times_s[-1] == newest_s
        )

    def find(self, name: str, labels: Labels | None = None) -> list[Series]:
        """The series of a name, under its other spelling when this one is not there."""
        for spelling in spellings(name):
            if found := self._by_name.get(spelling):
                return [series for series in found if series.id.carries(labels)]
        return []

    def peaks(self, name: str, labels: Labels | None = None) -> list[Series]:
        """The greatest values since the sample before; samples that are all kept are their own."""
        return self.find(name, labels)

    def fresh(self) -> dict[str, Series]:
        """The series of the newest scrape by their text; none where it failed."""
        return {key: series for key, series in self._series.items() if self.is_fresh(series)}

    def current(
        self, name: str, labels: Labels | None, at_s: float | None = None
    ) -> Iterator[tuple[Series, float]]:
        """The series present in the newest scrape up to at_s (None: of all), with their value."""
        end = len(self.attempts_s) if at_s is None else bisect_right(self.attempts_s, at_s)
        if end == 0:
            return
        newest_s = self.attempts_s[end - 1]
        if at_s is not None and at_s - newest_s > self.lookback_s:
            return
        for series in self.find(name, labels):
            index = bisect_left(series.times_s, newest_s)
            if index < len(series.times_s) and series.times_s[index] == newest_s:
                yield series, series.values[index]

    def is_fresh(self, series: Series) -> bool:
        """Was it in the newest scrape?"""
        return series.times_s[-1] == self.newest_s

    @property
    def newest_s(self) -> float | None:
        return self.attempts_s[-1] if self.attempts_s else None

    def _attempt(self, at_s: float, *, answered: bool) -> bool:
        if self.attempts_s and at_s <= self.attempts_s[-1]:
            return False
        self.attempts_s.append(at_s)
        self.answered.append(answered)
        if len(self.attempts_s) % _TRIM_EVERY == 0:
            self._trim(at_s - self.horizon_s)
        return True

    def _new(self, key: str) -> Series:
        series = self._series[key] = Series(series_id(key))
        self._by_name.setdefault(series.id.name, []).append(series)
        return series

    def _trim(self, before_s: float) -> None:
        gone = bisect_left(self.attempts_s, before_s)
        del self.attempts_s[:gone]
        del self.answered[:gone]
        for key, series in list(self._series.items()):
            series.trim(before_s)
            if not series.times_s:
                del self._series[key]
                self._by_name[series.id.name].remove(series)
                if not self._by_name[series.id.name]:
                    del self._by_name[series.id.name]
