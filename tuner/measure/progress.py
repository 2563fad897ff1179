"""What is known of a running measurement, twice a second, at a cost that does not grow with it.

Each request is looked at until it has ended and once after; only the last RECENT_S seconds are kept
for rates and percentiles. Invariant: this never holds the generator's event loop for longer than
the requests in flight and the recent ones take.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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

    output_tps counts what arrived, also for requests that still run (their chunks stand for tokens
    until the server has counted them). ttft is of first tokens that came lately, tpot and e2e of
    requests that ended lately and well. lag: sent − scheduled, of those sent lately.
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

    def clock(self, width: int = 0) -> str:
        """`measuring 12/35 s`; after the last send how long its answers have been waited for.
        width: of the seconds, where lines stand below each other."""
        if self.phase == "draining":
            return f"draining for {self.elapsed_s - self.total_s:.0f} s"
        return f"{self.phase} {self.elapsed_s:{width}.0f}/{self.total_s:.0f} s"

    @property
    def eta_s(self) -> float:
        """Until the sending ends; the last answers may take longer."""
        return max(0.0, self.total_s - self.elapsed_s)


class Tracker:
    """Turns the growing LoadResult into Progress; one per measurement."""

    def __init__(self, *, warmup_s: float, total_s: float) -> None:
        self._warmup_s, self._total_s = warmup_s, total_s
        self._seen = 0
        self._unsent: list[int] = []
        self._pending: dict[int, bool] = {}  # place → whether its first token has been noted
        self._sent: deque[tuple[float, float]] = deque(maxlen=MOST_RECENT)
        self._first: deque[tuple[float, float]] = deque(maxlen=MOST_RECENT)
        self._ended: deque[tuple[float, RequestRecord]] = deque(maxlen=MOST_RECENT)
        self._tokens: deque[tuple[float, int]] = deque()
        self._completed = self._failed = self._settled_tokens = 0

    def look(self, load: LoadResult) -> Progress:
        now_s = load.now_s()
        running_tokens = self._settle(load.records)
        self._tokens.append((now_s, self._settled_tokens + running_tokens))
        recent_s = min(RECENT_S, max(now_s, 1e-9))
        for kept in (self._sent, self._first, self._ended):
            while kept and kept[0][0] < now_s - recent_s:
                kept.popleft()
        while len(self._tokens) > 2 and self._tokens[1][0] <= now_s - recent_s:
            self._tokens.popleft()
        good = [record for _, record in self._ended if record.ok]
        return Progress(
            elapsed_s=now_s,
            total_s=self._total_s,
            warmup_s=self._warmup_s,
            in_flight=len(self._pending),
            sent=self._seen,
            completed=self._completed,
            failed=self._failed,
            recent_s=recent_s,
            sent_rate=_rate(self._sent, len(self._sent), now_s, recent_s),
            completed_rate=_rate(self._ended, len(good), now_s, recent_s),
            output_tps=self._output_tps(now_s),
            ttft=Recent.of([ttft_s for _, ttft_s in self._first]),
            tpot=Recent.of([record.tpot_s for record in good]),
            e2e=Recent.of([record.e2e_s for record in good]),
            lag=Recent.of([lag_s for _, lag_s in self._sent]),
        )

    def _settle(self, records: Sequence[RequestRecord]) -> int:
        """Take in new requests and what became of the others, which keep their places meanwhile;
        the tokens of those that still run."""
        new = range(self._seen, len(records))
        self._seen = len(records)
        self._pending.update((place, False) for place in new)
        self._note_sent(records, new)
        running_tokens = 0
        for place, noted in list(self._pending.items()):
            record = records[place]
            if not noted and not math.isnan(record.first_token_s):
                self._first.append((record.first_token_s, record.ttft_s))
                self._pending[place] = True
            if record.state == "censored":
                running_tokens += len(record.chunk_times_s)
                continue
            del self._pending[place]
            self._completed += record.ok
            self._failed += record.state == "failed"
            self._settled_tokens += record.output_tokens or len(record.chunk_times_s)
            self._ended.append((record.end_s, record))
        return running_tokens

    def _note_sent(self, records: Sequence[RequestRecord], new: Iterable[int]) -> None:
        still = []
        for place in (*self._unsent, *new):
            record = records[place]
            if math.isnan(record.sent_s):
                still.append(place)
            else:
                self._sent.append((record.sent_s, record.sent_s - record.scheduled_s))
        self._unsent = [place for place in still if records[place].state == "censored"]

    def _output_tps(self, now_s: float) -> float:
        """Between the oldest look that is kept and now; the start of the load counts as a look."""
        since_s, tokens = self._tokens[0] if now_s > RECENT_S else (0.0, 0)
        return max(0, self._tokens[-1][1] - tokens) / max(1e-9, now_s - since_s)


def _rate(kept: deque[Any], count: int, now_s: float, recent_s: float) -> float:
    """count of the kept ones per second; a full deque covers less than recent_s."""
    covered_s = now_s - kept[0][0] if len(kept) == MOST_RECENT else recent_s
    return count / max(1e-9, covered_s)
