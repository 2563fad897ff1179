"""The embedded scraper: one background thread reads a target's /metrics at a fixed interval.

Fifteen minutes are kept in memory, and with a history days in the database (keeper.py). A scrape
that fails marks every series stale, as Prometheus does, and its reason is what the questions answer
with. The thread ends with close() or the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.history_points import FINE_S, Point
from storage.sources.base import MIN_WINDOW_INTERVALS, Labels, MetricSource, Outcome
from storage.sources.fetch import TIMEOUT_S, FetchError, scrape_once
from storage.sources.keeper import FaultLog, Keeper
from storage.sources.longterm import (
    HistorySource,
    KeptKeys,
    KeptStore,
    PointStore,
    point_after,
)
from storage.sources.matrix import Matrix
from storage.sources.windowed import WindowedSource

if TYPE_CHECKING:
    from storage.history import History

SHORTEST_S = MIN_WINDOW_INTERVALS * FINE_S
"""The shortest window that the history's points can answer."""

_TARGET_LABELS = ("job", "instance")  # Prometheus adds them; a target's own metrics lack them


class ScrapeSource(WindowedSource):
    """url: the target's base or /metrics URL. A question waits for the first scrape to end.

    history: gives the target's History, or raises StorageError; read_only: it is not written; told:
    the faults told so far, shared by all that are kept in one place.
    """

    def __init__(
        self,
        url: str,
        *,
        scrape_interval_s: float = 5.0,
        labels: Labels | None = None,
        history: Callable[[], History] | None = None,
        read_only: bool = False,
        told: FaultLog | None = None,
    ) -> None:
        own = {k: v for k, v in (labels or {}).items() if k not in _TARGET_LABELS}
        super().__init__(max(scrape_interval_s, 0.1), own)
        self._url = url
        self._problem: tuple[Outcome, str] | None = None
        self._tried = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-scraper", daemon=True)
        self._thread.start()
        self._kept_keys = KeptKeys()
        self._keeper = Keeper(self, history, read_only=read_only, told=told) if history else None

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=TIMEOUT_S + 1)
        if self._keeper is not None:
            self._keeper.close()

    def over(self, window_s: float) -> MetricSource:
        return history_beyond(self, window_s, self.status().watched_s or 0.0, self.kept) or self

    def kept(self, window_s: float) -> PointStore | None:
        """What is kept of a window, and what came since; None where there is nothing to read."""
        return None if self._keeper is None else self._keeper.view(window_s, self._now_s())

    def held(self, *prefixes: str) -> tuple[Matrix, list[tuple[float, float]], str]:
        """(the series whose name begins so, with their samples, `up`, why the newest attempt
        brought nothing)."""
        self._now_s()
        with self._lock:
            fault = self._fault()
            why = fault[1] if fault else ""
            return self._store.matrix(*prefixes), self._store.up_points(), why

    @property
    def tried_s(self) -> float | None:
        """When the newest attempt was made (Unix seconds)."""
        self._now_s()
        return self._store.newest_s

    def point_after(self, since_s: float | None) -> Point | None:
        """The newest scrape as a point of the history; None where none is newer than since_s."""
        with self._lock:
            return point_after(self._store, since_s, self._kept_keys)

    @property
    def left_out(self) -> int:
        """How many of the target's engine series the history has no room for."""
        return self._kept_keys.left_out

    def _now_s(self) -> float:
        self._tried.wait(TIMEOUT_S + 1)
        return time.time()

    def _fault(self) -> tuple[Outcome, str] | None:
        if not self._tried.is_set():
            return Outcome.UNREACHABLE, f"{self._url} has not answered yet"
        return self._problem

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            self._scrape()
            self._tried.set()
            due_s = max(due_s + self.scrape_interval_s, time.monotonic())
            self._stop.wait(due_s - time.monotonic())

    def _scrape(self) -> None:
        at_s = time.time()
        try:
            exposition = scrape_once(self._url)
        except FetchError as fault:
            with self._lock:
                self._store.miss(at_s)
                self._problem = (fault.outcome, str(fault))
            return
        with self._lock:
            self._store.add(exposition)
            self._problem = None


def history_beyond(
    live: WindowedSource, window_s: float, held_s: float, kept: Callable[[float], KeptStore | None]
) -> HistorySource | None:
    """The history where memory, which holds held_s, does not reach back so far and what is kept
    reaches further; else None."""
    if window_s - live.scrape_interval_s <= held_s or window_s < SHORTEST_S:
        return None
    store = kept(window_s)
    view = None if store is None else HistorySource(live, store)
    return view if view is not None and (view.watched_s or 0.0) > held_s else None
