"""What is known of a running measurement, twice a second, at a cost that does not grow with it.

Each request is looked at until it has ended and once after; only the last RECENT_S seconds are kept
for rates and percentiles. Invariant: this never holds the generator's event loop for longer than
the requests in flight and the recent ones take.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.load import LoadResult
from tuner.records import RequestRecord

RECENT_S = 10.0
MOST_RECENT = 2_000
"""Requests that recent percentiles are taken from: more make them no better and every look late."""


@dataclass(frozen=True, slots=True)
class Recent:
    """Percentiles of a latency in seconds, of n requests that ended lately; NaN without any."""

    p50_s: float
    p95_s: float
    p99_s: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Recent:
        known = np.array([value for value in values if not math.isnan(value)])
        if len(known) == 0:
            return cls(math.nan, math.nan, math.nan, 0)
        p50, p95, p99 = np.quantile(known, [0.5, 0.95, 0.99], method="inverted_cdf")
        return cls(float(p50), float(p95), float(p99), len(known))


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts since the start; rates per second over the last recent_s seconds; times in seconds.

    output_tps counts tokens of requests that ended well in that time, failures count in none of the
    percentiles. lag_s: sent − scheduled.
    """

    elapsed_s: float
    total_s: float
    warmup_s: float
    in_flight: int
    sent: int
    completed: int
    failed: int
    recent_s: float
    sent_rate: float
    completed_rate: float
    output_tps: float
    ttft: Recent
    tpot: Recent
    e2e: Recent
    lag: Recent

    @property
    def warming_up(self) -> bool:
        return self.elapsed_s < self.warmup_s

    @property
    def phase(self) -> str:
        if self.warming_up:
            return "warm-up"
        return "measuring" if self.elapsed_s < self.total_s else "draining"

    @property
    def eta_s(self) -> float:
        """Until the sending ends; the last answers may take longer."""
        return max(0.0, self.total_s - self.elapsed_s)


class Tracker:
    """Turns the growing LoadResult into Progress; one per measurement."""

    def __init__(self, *, warmup_s: float, total_s: float) -> None:
        self._warmup_s, self._total_s = warmup_s, total_s
        self._seen = 0
        self._pending: list[int] = []
        self._sent: deque[float] = deque()
        self._ended: deque[RequestRecord] = deque(maxlen=MOST_RECENT)
        self._completed = self._failed = 0

    def look(self, load: LoadResult) -> Progress:
        now_s = load.now_s()
        self._settle(load.records)
        recent_s = min(RECENT_S, max(now_s, 1e-9))
        since_s = now_s - recent_s
        while self._sent and self._sent[0] < since_s:
            self._sent.popleft()
        while self._ended and self._ended[0].end_s < since_s:
            self._ended.popleft()
        good = [record for record in self._ended if record.ok]
        covered_s = recent_s
        if len(self._ended) == MOST_RECENT:  # older ones of the same seconds have dropped out
            covered_s = max(1e-9, now_s - self._ended[0].end_s)
        return Progress(
            elapsed_s=now_s,
            total_s=self._total_s,
            warmup_s=self._warmup_s,
            in_flight=len(self._pending),
            sent=self._seen,
            completed=self._completed,
            failed=self._failed,
            recent_s=recent_s,
            sent_rate=len(self._sent) / recent_s,
            completed_rate=len(good) / covered_s,
            output_tps=sum(record.output_tokens for record in good) / covered_s,
            ttft=Recent.of([record.ttft_s for record in good]),
            tpot=Recent.of([record.tpot_s for record in good]),
            e2e=Recent.of([record.e2e_s for record in good]),
            lag=Recent.of([record.sent_s - record.scheduled_s for record in self._ended]),
        )

    def _settle(self, records: Sequence[RequestRecord]) -> None:
        """Take in new requests and those that have ended; a record keeps its place meanwhile."""
        for place in range(self._seen, len(records)):
            self._pending.append(place)
            self._sent.append(records[place].scheduled_s)
        self._seen = len(records)
        running = []
        for place in self._pending:
            record = records[place]
            if record.state == "censored":
                running.append(place)
                continue
            self._completed += record.ok
            self._failed += record.state == "failed"
            self._ended.append(record)
        self._pending = running
