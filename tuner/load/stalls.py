"""How late the generator's event loop was, and how busy: whether its times can be believed.

A heartbeat is due every BEAT_S; what it comes late, any answer that arrived meanwhile waited too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

BEAT_S = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class LoopStalls:
    """Beats of one or several event loops: at_s on the records' clock, late_s, and busy, the share
    of one core that the loop's thread used since the beat before. Empty: nothing was watched."""

    at_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    late_s: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    busy: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    loop: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def p99_s(self) -> float:
        """Of the delay at any moment, so a long stall weighs as long as it lasted."""
        if len(self.late_s) == 0:
            return 0.0
        swallowed = np.floor(self.late_s / BEAT_S).astype(np.int64)  # beats that never came
        first = np.repeat(np.cumsum(swallowed) - swallowed, swallowed)
        steps = np.arange(int(swallowed.sum())) - first + 1
        delays = np.concatenate([self.late_s, np.repeat(self.late_s, swallowed) - steps * BEAT_S])
        return float(np.quantile(delays, 0.99, method="inverted_cdf"))

    @property
    def max_s(self) -> float:
        return float(self.late_s.max(initial=0.0))

    @property
    def busy_share(self) -> float:
        """Of the busiest loop, 0 … 1, over the time watched."""
        shares = []
        for loop in np.unique(self.loop):
            own = self.loop == loop
            spans_s = self.late_s[own] + BEAT_S
            shares.append(float(np.average(self.busy[own], weights=spans_s)))
        return max(shares, default=0.0)

    def within(self, start_s: float, end_s: float) -> LoopStalls:
        """The beats of a part of the time."""
        inside = (self.at_s >= start_s) & (self.at_s < end_s)
        return LoopStalls(
            self.at_s[inside], self.late_s[inside], self.busy[inside], self.loop[inside]
        )

    @classmethod
    def merged(cls, parts: Sequence[LoopStalls]) -> LoopStalls:
        """Of several loops that ran at the same time, on one clock."""
        if not parts:
            return cls()
        return cls(
            np.concatenate([part.at_s for part in parts]),
            np.concatenate([part.late_s for part in parts]),
            np.concatenate([part.busy for part in parts]),
            np.concatenate([np.full(len(part.at_s), i) for i, part in enumerate(parts)]),
        )


class Heartbeat:
    """Beats on the running loop from start() to stop(); both are called in the loop's thread."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float, float]] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self, began_s: float) -> None:
        """began_s: the start of the records' clock."""
        self._began_s = began_s
        self._loop = asyncio.get_running_loop()
        self._last_s, self._last_cpu_s = time.monotonic(), time.thread_time()
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        now_s, cpu_s = time.monotonic(), time.thread_time()
        span_s = now_s - self._last_s
        late_s = max(0.0, span_s - BEAT_S)
        busy = min(1.0, (cpu_s - self._last_cpu_s) / span_s)
        self._rows.append((now_s - self._began_s, late_s, busy))
        self._last_s, self._last_cpu_s = now_s, cpu_s
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def stop(self) -> LoopStalls:
        if self._timer is not None:
            self._timer.cancel()
        rows = np.array(self._rows).reshape(-1, 3)
        at_s, late_s, busy = rows.T.copy()
        return LoopStalls(at_s, late_s, busy, np.zeros(len(rows), dtype=np.int64))
