"""One moment of a target's metrics as the history keeps it, and what points say together. Pure.

A point holds each series' newest sample and, since the point before: a gauge's peak, and what a
counter lost in resets. Invariant: growth between two points is the difference of the samples plus
what was lost, so that a counter that was reset, and even one that has since outgrown its old value,
counts as it did sample by sample.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from storage import columns

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
CODEC = columns.CODEC
FINE_S, COARSE_S = 60, 600
KEPT_S = {FINE_S: 86_400, COARSE_S: 30 * 86_400}
"""Resolution → for how long its points are kept, both in seconds."""

MAX_SERIES = 4096
"""A page of more engine series than these keeps the first so many."""

_COUNTERS = ("_total", "_bucket", "_sum", "_count")


def is_counter(name: str) -> bool:
    """By OpenMetrics' endings: a page's TYPE lines are not read. A gauge so named keeps its newest
    sample as any other, and has no peak."""
    return name.endswith(_COUNTERS)


@dataclass(frozen=True)
class Layout:
    """The series of a point by their text (`name{a="b"}`), in the order of its figures."""

    keys: tuple[str, ...]

    @cached_property
    def index(self) -> dict[str, int]:
        return {key: position for position, key in enumerate(self.keys)}

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self._text()).hexdigest()

    def encoded(self) -> bytes:
        return zlib.compress(self._text(), 6)

    @classmethod
    def decoded(cls, blob: bytes) -> Layout:
        """Raises ValueError for a damaged blob."""
        try:
            return cls(tuple(zlib.decompress(blob).decode().split("\n")))
        except zlib.error as fault:
            raise ValueError("a list of series is damaged") from fault

    def _text(self) -> bytes:
        return "\n".join(self.keys).encode()


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """at_s: Unix seconds. values: [series] newest samples; peaks: [series] greatest sample since
    the point before, 0 for counters; lost: [series] what resets took since then, 0 for gauges."""

    at_s: float
    layout: Layout
    values: Floats
    peaks: Floats
    lost: Floats

    def slot(self, resolution_s: int) -> int:
        return int(self.at_s // resolution_s)

    def encoded(self) -> bytes:
        parts = {"values": self.values, "peaks": self.peaks, "lost": self.lost}
        return columns.encode(parts)[1]

    @classmethod
    def decoded(cls, at_s: float, layout: Layout, codec: str, blob: bytes) -> Point:
        """Raises ValueError for a damaged blob or one that belongs to another layout."""
        parts = columns.decode(codec, blob)
        found = [np.asarray(parts[name], dtype=np.float64) for name in ("values", "peaks", "lost")]
        if any(len(part) != len(layout.keys) for part in found):
            raise ValueError("a point of the history does not fit its list of series")
        return cls(at_s, layout, *(part if part.any() else _zeros(len(part)) for part in found))


@lru_cache(maxsize=8)
def _zeros(count: int) -> Floats:
    """One for all points: a month of them is held in memory, and resets are rare."""
    shared = np.zeros(count)
    shared.setflags(write=False)
    return shared


def fold(points: Sequence[Point]) -> Point:
    """Several points in a row, oldest first, as one at the last one's time."""
    last = points[-1]
    peaks, lost = last.peaks.copy(), last.lost.copy()
    for point in points[:-1]:
        there, here = _shared(point.layout, last.layout)
        peaks[here] = np.fmax(peaks[here], point.peaks[there])
        lost[here] += point.lost[there]
    return Point(last.at_s, last.layout, last.values, peaks, lost)


def _shared(a: Layout, b: Layout) -> tuple[Positions, Positions]:
    """Where the series that both have stand in each."""
    if a.digest == b.digest:
        every = np.arange(len(a.keys))
        return every, every
    both = [(i, b.index[key]) for i, key in enumerate(a.keys) if key in b.index]
    pairs = np.array(both, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def unwound(values: Floats, lost: Floats) -> Floats:
    """A counter's samples as if it had never been reset: [points], ascending, from values[0].

    lost: [points], as in Point. A fall that no loss explains (a reset in a gap between points)
    counts from 0.
    """
    grown = values[1:] - values[:-1] + lost[1:]
    grown = np.where(grown < 0, values[1:] + lost[1:], grown)
    return np.concatenate([values[:1], values[0] + np.cumsum(grown)])
