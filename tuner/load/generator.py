"""The load generator: open loop at scheduled times, or closed loop with a number of clients.

Open-loop sends never wait for answers. In a closed loop a request is scheduled when its client
comes free. The generator's own lag (sent − scheduled) is in every record.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import orjson

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load.stream import StreamReader, one_line
from tuner.records import RequestRecord
from tuner.workload import Workload
from tuner.workload.content import Content

TICK_S = 0.5
DRAIN_S = (5.0, 30.0)
CONNECT_TIMEOUT_S = 10.0
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
FAILURE_PAUSE_S = 0.1
"""A closed-loop client rests after a refusal, so that a server that refuses is not flooded."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """send_s: new requests are sent for this long; drain_s: how long the last may then take, None
    for half as long again as the slowest so far (within DRAIN_S).

    content_salt None makes the prompts' content fresh; bytes make it repeatable.
    """

    endpoint: Endpoint
    workload: Workload
    seed: int
    send_s: float
    drain_s: float | None = None
    request_timeout_s: float = 600.0
    content_salt: bytes | None = None
    max_requests: int | None = None


@dataclass(slots=True)
class LoadResult:
    """Records in the order of their schedule, on a clock that starts at began_s (monotonic)."""

    began_s: float
    began_unix_s: float
    records: list[RequestRecord] = field(default_factory=list)
    stopped_early: bool = False
    ended_s: float = 0.0

    def now_s(self) -> float:
        return time.monotonic() - self.began_s


Tick = Callable[[LoadResult], bool]
"""Called about twice a second with the records so far; True ends the sending."""


def generate(plan: LoadPlan, on_tick: Tick | None = None) -> LoadResult:
    """Run the plan to its end; Ctrl-C closes every connection and is raised on. UserError where
    this process may not open as many connections as the load takes."""
    _allow_connections()
    return asyncio.run(_Generator(plan, on_tick).run())


def _allow_connections() -> None:
    """As many open files as the system grants: each request in flight holds a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse their own hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Generator:
    def __init__(self, plan: LoadPlan, on_tick: Tick | None) -> None:
        self.plan = plan
        self.on_tick = on_tick
        self.content = Content(plan.workload, plan.endpoint, plan.seed, plan.content_salt)
        self.result = LoadResult(time.monotonic(), time.time())
        self._headers = plan.endpoint.headers()
        self._open: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._broken = False

    async def run(self) -> LoadResult:
        plan = self.plan
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        timeout = aiohttp.ClientTimeout(
            total=plan.request_timeout_s, sock_connect=CONNECT_TIMEOUT_S
        )
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self.session = session
            sender = asyncio.create_task(self._send_all())
            ticker = asyncio.create_task(self._tick())
            try:
                await sender
                if self._open and not self._broken:
                    await asyncio.wait(self._open, timeout=self._drain_s())
            finally:
                tasks = [ticker, sender, *self._open]
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                self.result.ended_s = self.result.now_s()
                for record in self.result.records:
                    if record.state == "censored":
                        record.end_s = self.result.ended_s
        for end in ends:  # requests record their failures: what is left is a fault of ours
            if isinstance(end, Exception):
                raise end
        self.result.records.sort(key=lambda record: record.index)
        return self.result

    def _drain_s(self) -> float:
        if self.plan.drain_s is not None:
            return self.plan.drain_s
        took = [r.end_s - r.sent_s for r in self.result.records if r.ok]
        return min(DRAIN_S[1], max(DRAIN_S[0], 1.5 * max(took, default=0.0)))

    async def _send_all(self) -> None:
        if self.plan.workload.arrivals.closed:
            await self._send_closed()
        else:
            await self._send_open()

    async def _send_open(self) -> None:
        """At their times; a late generator sends at once and its lag shows."""
        rng = np.random.default_rng((self.plan.seed, 2**31))
        times = self.plan.workload.arrivals.times(rng, self.plan.send_s)
        for session, scheduled_s in enumerate(times):
            if self._enough(session):
                return
            if scheduled_s >= self.plan.send_s:
                break
            delay_s = scheduled_s - self.result.now_s()
            if delay_s > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), delay_s)
            if self._stop.is_set():
                return
            self._start(RequestRecord(session, scheduled_s, session=session))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                self._stop.wait(), max(0.0, self.plan.send_s - self.result.now_s())
            )

    async def _send_closed(self) -> None:
        """Clients that each send when their last answer has ended."""
        self._next_index = 0
        clients = [
            asyncio.create_task(self._client())
            for _ in range(self.plan.workload.arrivals.clients_at(0.0, self.plan.send_s))
        ]
        self._open.update(clients)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait(
                (stopping, asyncio.gather(*clients, return_exceptions=True)),
                timeout=self.plan.send_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()

    async def _client(self) -> None:
        while self.result.now_s() < self.plan.send_s and not self._stop.is_set():
            index = self._next_index
            if self._enough(index):
                return
            self._next_index += 1
            record = RequestRecord(index, self.result.now_s(), session=index)
            self.result.records.append(record)
            await self._request(record)
            if record.state == "failed":
                await asyncio.sleep(FAILURE_PAUSE_S)

    def _enough(self, session: int) -> bool:
        limits = (self.plan.max_requests, self.plan.workload.requests)
        return any(limit is not None and session >= limit for limit in limits)

    def _start(self, record: RequestRecord) -> None:
        self.result.records.append(record)
        task = asyncio.create_task(self._request(record))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _request(self, record: RequestRecord) -> None:
        try:
            await self._exchange(record)
        except Exception:
            self._break_off()
            raise

    def _break_off(self) -> None:
        """A fault of ours: end at once, it is raised when every connection is closed."""
        self._broken = True
        self._stop.set()

    async def _exchange(self, record: RequestRecord) -> None:
        prompt_tokens, output_tokens, _ = self.content.lengths(record.session, record.turn)
        record.wanted_prompt_tokens, record.wanted_output_tokens = prompt_tokens, output_tokens
        body = orjson.dumps(self.content.body(record.session, record.turn))
        record.sent_s = self.result.now_s()
        try:
            async with self.session.post(
                self.plan.endpoint.generate_url, data=body, headers=self._headers
            ) as response:
                record.http_status = response.status
                if response.status != 200:
                    text = (await response.read()).decode(errors="replace")
                    self._failed(record, f"HTTP {response.status}: {one_line(text)}")
                    return
                await StreamReader(record, self.result.began_s).read(response.content.iter_any())
        except aiohttp.ConnectionTimeoutError:
            self._failed(record, f"no connection within {CONNECT_TIMEOUT_S:g} s")
        except TimeoutError:
            self._failed(record, f"no complete answer within {self.plan.request_timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            if getattr(error, "errno", None) in OUT_OF_FILES:
                raise UserError(
                    "the load generator may open no more connections (too many open files): lower "
                    "concurrency= or rate=, or raise the limit with ulimit -n"
                ) from error
            self._failed(record, one_line(f"{type(error).__name__}: {error}"))

    def _failed(self, record: RequestRecord, error: str) -> None:
        record.state, record.error = "failed", error
        record.end_s = self.result.now_s()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                done = self.on_tick is not None and self.on_tick(self.result)
            except Exception:
                self._break_off()
                raise
            if done:
                self.result.stopped_early = True
                self._stop.set()
                return
