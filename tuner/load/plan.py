"""What is to be sent, what came of it, and how a load can end before its time.

Invariant: however it ends, the records of what was sent are kept: in the LoadResult that generate()
returns, or in the `load` of Interrupted and LoadBrokenError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load.stalls import LoopStalls
from tuner.records import RequestRecord
from tuner.workload import Workload

CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """send_s: new requests are sent for this long; drain_s: how long the last may then take, None
    for half as long again as the slowest so far (5 to 30 s).

    content_salt None makes the prompts' content fresh; bytes make it repeatable. token_timeout_s:
    the longest pause between tokens of one answer, None for no limit of its own. extra_body is
    merged into each request's body. processes None: as many as the wanted rate needs.
    """

    endpoint: Endpoint
    workload: Workload
    seed: int
    send_s: float
    drain_s: float | None = None
    request_timeout_s: float = 600.0
    content_salt: bytes | None = None
    max_requests: int | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    token_timeout_s: float | None = None
    extra_body: Mapping[str, Any] | None = None
    processes: int | None = None

    @property
    def most_sessions(self) -> int | None:
        """The tighter of the caller's limit and the workload's own; None without any."""
        limits = [n for n in (self.max_requests, self.workload.requests) if n is not None]
        return min(limits, default=None)


@dataclass(slots=True)
class LoadResult:
    """Records in the order of their creation, on a clock that starts at began_s (monotonic).

    stalls: of the generator's own event loop. processes: how many sent, processes_why: how that
    was decided. stopped_early: sending ended before its time, by a tick or by Ctrl-C. sent_all:
    the workload or max_requests held no more sessions.
    """

    began_s: float
    began_unix_s: float
    records: list[RequestRecord] = field(default_factory=list)
    stopped_early: bool = False
    sent_all: bool = False
    ended_s: float = 0.0
    stalls: LoopStalls = field(default_factory=LoopStalls)
    processes: int = 1
    processes_why: str = ""

    def now_s(self) -> float:
        return time.monotonic() - self.began_s


Tick = Callable[[LoadResult], bool]
"""Called about twice a second with the records so far; True ends the sending."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during generate(): load holds what was measured until then, every request that was
    still running censored. Who catches KeyboardInterrupt only, sees a plain Ctrl-C."""

    def __init__(self, load: LoadResult) -> None:
        super().__init__()
        self.load = load


class LoadBrokenError(UserError):
    """The generator could not go on; load holds what was measured until then."""

    def __init__(self, text: str, load: LoadResult) -> None:
        super().__init__(text)
        self.load = load
