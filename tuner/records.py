"""What happened to each request: the raw record everything else is computed from.

Times are seconds on the monotonic clock since the measurement began. Latencies start at the
*scheduled* send, so that a stalled server cannot hide its queue (coordinated omission).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

RequestState = Literal["ok", "failed", "censored"]
NEVER = math.nan
NO_SESSION = -1
MOST_TOKENS = 10_000_000
"""Of one request, prompt or answer: no model's context is longer."""


@dataclass(slots=True)
class RequestRecord:
    """One request, named by (session, turn). A time that never came is NaN.

    index: order of creation, unique. session: one arrival, a request or a conversation whose turns
    wait for each other; without it the index (records of older measurements have no sessions).
    chunk_times_s and chunk_tokens: arrival of each piece of text and the tokens it stood for.
    wanted_*: what the workload asked for; *_tokens: what the server counted (0 where it does not
    say; output tokens are then the chunks, and counted_by_server is False).
    state "censored": still running when the measurement was cut off, at end_s.
    sent_s: when sending began; connect_s of it went into opening a connection (0: one was open).
    retries: sent anew because a kept connection turned out to be closed.
    """

    index: int
    session: int = field(default=NO_SESSION, kw_only=True)
    turn: int = field(default=0, kw_only=True)
    scheduled_s: float
    sent_s: float = NEVER
    first_byte_s: float = NEVER
    first_token_s: float = NEVER
    first_answer_token_s: float = NEVER
    end_s: float = NEVER
    chunk_times_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    wanted_prompt_tokens: int = 0
    wanted_output_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    counted_by_server: bool = True
    http_status: int = 0
    finish_reason: str = ""
    error: str = ""
    state: RequestState = "censored"
    connect_s: float = 0.0
    retries: int = 0

    def __post_init__(self) -> None:
        if self.session == NO_SESSION:
            self.session = self.index

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    @property
    def lag_s(self) -> float:
        """How late the generator itself was; NaN where it was never sent."""
        return self.sent_s - self.scheduled_s

    @property
    def ttft_s(self) -> float:
        return self._latency(self.first_token_s)

    @property
    def ttfat_s(self) -> float:
        """Infinite for an answer that ended within its reasoning: the answer never came."""
        if self.state == "ok" and math.isnan(self.first_answer_token_s):
            return math.inf
        return self._latency(self.first_answer_token_s)

    @property
    def e2e_s(self) -> float:
        """To the last token; the connection may stay open a little longer."""
        last_s = self.chunk_times_s[-1] if self.chunk_times_s else self.end_s
        return self._latency(last_s) if self.state != "censored" else NEVER

    @property
    def tpot_s(self) -> float:
        """Infinite when failed, NaN when undefined (one token) or unknown (censored)."""
        if self.state == "failed":
            return math.inf
        if self.state != "ok" or self.output_tokens < 2 or not self.chunk_times_s:
            return NEVER
        return (self.chunk_times_s[-1] - self.first_token_s) / (self.output_tokens - 1)

    def gaps_s(self) -> npt.NDArray[np.float64]:
        """Inter-token latencies; a chunk of k tokens counts as k gaps of 1/k."""
        counts = np.asarray(self.chunk_tokens, dtype=np.int64)
        times = np.asarray(self.chunk_times_s)[counts > 0]
        counts = counts[counts > 0][1:]
        if len(counts) == 0:
            return np.empty(0)
        return np.repeat(np.diff(times) / counts, counts)

    def _latency(self, at_s: float) -> float:
        return math.inf if self.state == "failed" else at_s - self.scheduled_s


def spread_tokens(tokens: int, chunks: int, *, first: int | None = None) -> list[int]:
    """The server's count of tokens over the chunks that brought them, evenly, so that their sum is
    the count. first: what the first chunk is known to hold, as of a prefill that samples one."""
    if first is not None and chunks > 1 and tokens > first:
        return [first, *spread_tokens(tokens - first, chunks - 1)]
    ends = [-(-(i + 1) * tokens // chunks) for i in range(chunks)]  # rounded up: the first ≥ 1
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def to_columns(records: Iterable[RequestRecord]) -> dict[str, list[Any]]:
    """Column name → values, for storage."""
    rows = list(records)
    return {f.name: [getattr(row, f.name) for row in rows] for f in fields(RequestRecord)}


def from_columns(columns: Mapping[str, Sequence[Any]]) -> list[RequestRecord]:
    """The inverse of to_columns; unknown columns are ignored."""
    names = [f.name for f in fields(RequestRecord) if f.name in columns]
    records = []
    for values in zip(*(columns[name] for name in names), strict=True):
        row = {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in zip(names, values, strict=True)
        }
        records.append(RequestRecord(**row))
    return records
