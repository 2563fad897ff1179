"""The embedded scraper: one background thread reads a target's /metrics at a fixed interval.

Fifteen minutes are kept in memory. A scrape that fails marks every series stale, as Prometheus
does, and its reason is what the questions answer with. The thread ends with close() or the process.
"""

from __future__ import annotations

import threading
import time

from storage.sources.base import Labels, Outcome
from storage.sources.fetch import TIMEOUT_S, FetchError, scrape_once
from storage.sources.windowed import WindowedSource

_TARGET_LABELS = ("job", "instance")  # Prometheus adds them; a target's own metrics lack them


class ScrapeSource(WindowedSource):
    """url: the target's base or /metrics URL. A question waits for the first scrape to end."""

    def __init__(
        self, url: str, *, scrape_interval_s: float = 5.0, labels: Labels | None = None
    ) -> None:
        own = {k: v for k, v in (labels or {}).items() if k not in _TARGET_LABELS}
        super().__init__(max(scrape_interval_s, 0.1), own)
        self._url = url
        self._problem: tuple[Outcome, str] | None = None
        self._tried = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-scraper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=TIMEOUT_S + 1)

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
