"""The error budgets of this process: read at most once a beat, however many tabs ask.

The beat is that of the rules: windows of five minutes to three days change no faster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.sources.base import MetricSource
from tuner.budget.live import Budgets, read_budgets
from tuner.slo import parse_slos

BEAT_S = 60.0
FIRST_BEAT_S = 5.0
"""While nothing could be read: the target may answer a moment later."""


@dataclass(frozen=True, slots=True)
class Look:
    """at_s: Unix seconds."""

    at_s: float
    budgets: Budgets


class BudgetWatch:
    """Thread-safe."""

    def __init__(
        self,
        source: MetricSource,
        slos: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._slos = parse_slos(slos)
        self._clock = clock
        self._lock = threading.Lock()
        self._latest: Look | None = None
        self._read_at_s = 0.0

    def latest(self) -> Look:
        """The newest look; a new one where the last is a beat old."""
        with self._lock:
            beat_s = BEAT_S if self._latest and self._latest.budgets.found else FIRST_BEAT_S
            if self._latest is None or self._clock() - self._read_at_s >= beat_s:
                self._latest = Look(time.time(), read_budgets(self._source, self._slos))
                self._read_at_s = self._clock()
            return self._latest
