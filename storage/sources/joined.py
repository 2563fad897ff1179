"""The kept points of several targets as one store, each series with its target's `instance`.

Invariant: what is asked is answered only as far back as every target that gives points was watched,
so that a window never holds the growth of some of them alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from storage.sources.base import Labels
from storage.sources.exposition import SeriesId
from storage.sources.longterm import KeptStore, PointStore
from storage.sources.store import Series


class JoinedPoints(KeptStore):
    """parts: by instance, at least one; of one resolution.

    Answers what a HistorySource asks: find, peaks, current, is_fresh, newest_s and since_s. It
    holds no series of its own: names, fresh, matrix, up_points and began_s say nothing.
    """

    def __init__(self, parts: Mapping[str, PointStore]) -> None:
        super().__init__(math.inf)
        self._parts = dict(parts)
        self.resolution_s = next(iter(self._parts.values())).resolution_s
        known_s = [part.since_s for part in self._parts.values() if part.since_s is not None]
        self.since_s = max(known_s, default=None)

    def find(self, name: str, labels: Labels | None = None) -> list[Series]:
        return self._found(lambda part: part.find(name), labels)

    def peaks(self, name: str, labels: Labels | None = None) -> list[Series]:
        return self._found(lambda part: part.peaks(name), labels)

    def _found(
        self, asked: Callable[[PointStore], list[Series]], labels: Labels | None
    ) -> list[Series]:
        every = (_of(name, found) for name, part in self._parts.items() for found in asked(part))
        return [series for series in every if series.id.carries(labels)]

    def current(
        self, name: str, labels: Labels | None, at_s: float | None = None
    ) -> Iterator[tuple[Series, float]]:
        for instance, part in self._parts.items():
            for found, value in part.current(name, None, at_s):
                series = _of(instance, found)
                if series.id.carries(labels):
                    yield series, value

    def is_fresh(self, series: Series) -> bool:
        return self._parts[series.id.labels["instance"]].is_fresh(series)

    @property
    def newest_s(self) -> float | None:
        newest_s = (part.newest_s for part in self._parts.values())
        return max((at_s for at_s in newest_s if at_s is not None), default=None)


def of_target(labels: Labels, instance: str) -> dict[str, str]:
    """A page's own `instance` becomes `exported_instance`, as Prometheus has it."""
    if "instance" in labels:
        labels = {**labels, "exported_instance": labels["instance"]}
    return {**labels, "instance": instance}


def _of(instance: str, found: Series) -> Series:
    """The same samples under the target's name."""
    return Series(
        SeriesId(found.id.name, of_target(found.id.labels, instance)), found.times_s, found.values
    )
