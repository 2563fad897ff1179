"""Keeps a scraped target's history and answers from it: one thread writes a point a minute.

Invariant: whatever the database does, the live view goes on: who asks never waits for it to be
opened, nor again soon after a read that failed. A fault is told once, and again only when it comes
back after QUIET_S without it; what a full disk or a lock cost is a gap, not a wrong count, because
the next point says what happened since the last one stored. A file that is gone is made anew.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage.errors import StorageError
from storage.history_points import COARSE_S, FINE_S, MAX_SERIES
from storage.sources.longterm import FINE_UP_TO_S, KeptPoints, PointStore
from storage.sources.store import HORIZON_S

if TYPE_CHECKING:
    from storage.history import History
    from storage.sources.scrape import ScrapeSource

CLOSE_S = 3.0
"""How long an end waits for the last point; a locked database must not hold a program up."""

QUIET_S = 3600.0

BLIND_S = 60.0
"""For so long nothing is read after a read that failed: it may have taken its time."""


def told_on_stderr(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


class FaultLog:
    """Faults as sentences, each once. Those who keep several targets in one place share one."""

    def __init__(self, tell: Callable[[str], None] = told_on_stderr) -> None:
        self.tell = tell
        self._failed_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def once(self, what: str, why: StorageError | str) -> None:
        now_s = time.monotonic()
        with self._lock:
            new = now_s - self._failed_s.get(what, -math.inf) > QUIET_S
            self._failed_s[what] = now_s
        if new:
            self.tell(f"{what}: {why}")


class Keeper:
    """open_history: gives the History, or raises StorageError; it is tried again every minute.

    read_only: an existing history is read, nothing is written.
    """

    def __init__(
        self,
        live: ScrapeSource,
        open_history: Callable[[], History],
        *,
        read_only: bool = False,
        told: FaultLog | None = None,
    ) -> None:
        self._live = live
        self._open = open_history
        self._told = told or FaultLog()
        self._blind_until_s = -math.inf
        self._history: History | None = None
        self._kept: KeptPoints | None = None
        self._opening = threading.Lock()
        self._reading = threading.Lock()
        self._views: dict[float, tuple[float, PointStore]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if not read_only:
            self._thread = threading.Thread(target=self._run, name="metrics-history", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Writes what came since the last point."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=CLOSE_S)
        if self._history is not None and (self._thread is None or not self._thread.is_alive()):
            self._history.close()

    def write(self) -> None:
        """One point, of what came since the newest one stored."""
        with self._gap_told():
            self._opened().add(self._live.point_after)
            if left_out := self._live.left_out:
                why = f"a target's first {MAX_SERIES} engine series are kept, {left_out} are not"
                self._told.once(f"some metrics are not kept beyond {HORIZON_S / 60:.0f} min", why)

    def view(self, window_s: float, now_s: float) -> PointStore | None:
        """The points of a window and what came since; None where they cannot be read."""
        with self._reading:
            fresh_s = now_s - self._live.scrape_interval_s
            self._views = {k: made for k, made in self._views.items() if made[0] > fresh_s}
            if window_s not in self._views:
                view = self._look(window_s, now_s)
                if view is None:
                    return None
                self._views[window_s] = now_s, view
            return self._views[window_s][1]

    def _look(self, window_s: float, now_s: float) -> PointStore | None:
        resolution_s = FINE_S if window_s <= FINE_UP_TO_S else COARSE_S
        not_yet = self._thread is not None and not self._usable
        if not_yet or time.monotonic() < self._blind_until_s:
            return None
        try:
            history = self._opened()
            if self._kept is None or self._kept.history is not history:
                self._kept = KeptPoints(history)
            points = self._kept.back_to(now_s - window_s - resolution_s, resolution_s, now_s)
        except StorageError as fault:
            self._told.once("the history of metrics cannot be read", fault)
            self._blind_until_s = time.monotonic() + BLIND_S
            return None
        newest = self._live.point_after(points[-1].at_s if points else None)
        if newest is not None:
            points = [*points, newest]
        return PointStore(points, resolution_s)

    @property
    def _usable(self) -> bool:
        history = self._history  # once: the writer may let go of it meanwhile
        return history is not None and not history.file_gone

    def _opened(self) -> History:
        with self._opening:
            if self._history is not None and not self._usable:
                lost, self._history = self._history, None
                lost.close()  # first: the last one to leave an SQLite file tidies up beside it
                self._told.tell(
                    f"the history of metrics in {lost.location} was deleted, moved or replaced: "
                    "it is opened anew, and goes on from what memory holds"
                )
            if self._history is None:
                self._history = self._open()
            return self._history

    @contextmanager
    def _gap_told(self) -> Iterator[None]:
        try:
            yield
        except StorageError as fault:
            self._told.once(f"metrics are not kept beyond {HORIZON_S / 60:.0f} min", fault)

    def _run(self) -> None:
        with self._gap_told():
            self._opened()
        while not self._stop.wait(FINE_S - time.time() % FINE_S):
            self.write()
        self.write()
