"""A recording of expositions as a metric source: fixtures and post-mortems, answered as if live."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from storage.sources.base import Labels
from storage.sources.exposition import parse_exposition
from storage.sources.windowed import WindowedSource


class RecordedSource(WindowedSource):
    """snapshots: (Unix seconds, exposition text) in order. now_s defaults to the last one's time.

    The scrape interval is the smallest gap between snapshots unless given.
    Raises NotAnExpositionError for a text that is none.
    """

    def __init__(
        self,
        snapshots: Sequence[tuple[float, str]],
        *,
        now_s: float | None = None,
        scrape_interval_s: float | None = None,
        labels: Labels | None = None,
    ) -> None:
        times_s = [at_s for at_s, _ in snapshots]
        gaps_s = [b - a for a, b in pairwise(times_s) if b > a]
        super().__init__(scrape_interval_s or min(gaps_s, default=1.0), labels)
        self._store.horizon_s = float("inf")
        for at_s, text in snapshots:
            self._store.add(parse_exposition(text, at_s))
        self.now_s = now_s if now_s is not None else max(times_s, default=0.0)

    def _now_s(self) -> float:
        return self.now_s

    def _wide(self, window_s: float) -> float:
        """A recording's gaps are what they are: the window asked for is the one answered."""
        return window_s
