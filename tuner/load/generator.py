"""The load generator of one process: open loop at scheduled times, or closed loop with clients.

Open-loop sends never wait for answers. In a closed loop a request is scheduled when its client
comes free, which is when its last answer ended. A session's later turns wait for the answers
before. Invariant: the generator's own lag (sent − scheduled) is in every record.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Coroutine
from typing import Any

from tuner.errors import UserError
from tuner.load.alarm import Alarm
from tuner.load.answer import BodyStaysOpenError, StreamedAnswer, TimeLimits
from tuner.load.bodies import Request, Requests
from tuner.load.connection import HttpError
from tuner.load.http import HttpClient
from tuner.load.limits import LIMITS, allow_connections, no_long_collections
from tuner.load.plan import LoadBrokenError, LoadPlan, LoadResult, Tick
from tuner.load.schedule import Schedule, Shard, session_numbers
from tuner.load.stalls import Heartbeat
from tuner.records import RequestRecord
from tuner.workload.content import Content

TICK_S = 0.5
DRAIN_S = (5.0, 30.0)
WATCH_S = 0.05
"""Time limits and the number of clients are looked at so often."""

RESERVE_PER_CLIENT = 16
FAILURE_PAUSE_S = 0.1
"""A closed-loop client rests after a refusal, so that a server that refuses is not flooded."""


class Generator:
    """Runs a plan's shard once. result is filled as it goes and whole when run() has ended, also
    where that raises. began_s: the common start on the monotonic clock, None for now."""

    def __init__(
        self,
        plan: LoadPlan,
        on_tick: Tick | None = None,
        *,
        shard: Shard = Shard(),  # noqa: B008 – it is frozen
        tick_s: float = TICK_S,
    ) -> None:
        self.plan, self.shard = plan, shard
        self.on_tick, self._tick_s = on_tick, tick_s
        self.result = LoadResult(time.monotonic(), time.time())
        self.content = Content(plan.workload, plan.endpoint, plan.seed, plan.content_salt)
        self.schedule = None if plan.workload.arrivals.closed else Schedule(plan, shard)
        ahead = self.schedule.sessions_ahead() if self.schedule else session_numbers(plan, shard)
        self.requests = Requests(self.content, plan.endpoint, ahead, plan.extra_body)
        self._limits = TimeLimits(plan.request_timeout_s, plan.token_timeout_s)
        self._sessions = session_numbers(plan, shard)  # a closed loop's, as clients take them
        self._clients: set[int] = set()
        self._index = itertools.count()
        self._more = True  # whether there are sessions left to take
        self._open: set[asyncio.Task[None]] = set()
        self.started = self._stopping = False
        self._fault: BaseException | None = None

    def prepare(self) -> None:
        """Build what is sent first."""
        most = None
        if self.schedule is None and self.plan.most_sessions is None:
            most = RESERVE_PER_CLIENT * max(4, self._clients_wanted(0.0))
        self.requests.prebuild(most)

    async def run(self, began_s: float | None = None) -> LoadResult:
        allow_connections()
        self.client = HttpClient(self.plan.endpoint.base_url, self.plan.connect_timeout_s)
        self._alarm = Alarm()
        self._stopped = asyncio.Event()
        self.started = True
        helpers: list[asyncio.Task[None]] = []
        heartbeat = Heartbeat()
        with no_long_collections():
            try:
                await self._begin(began_s)
                heartbeat.start(self.result.began_s)
                helpers = [asyncio.create_task(self._tick()), asyncio.create_task(self._watch())]
                if self.schedule is None:
                    self._place_clients()
                else:
                    await self._send_open(self.schedule)
                await self._until_sent()
                await self._drain(self.result.now_s() + self._drain_s())
            finally:
                await self._close(helpers)
                self.result.stalls = heartbeat.stop()
        if self._fault is not None:
            raise self._fault
        return self.result

    async def _begin(self, began_s: float | None) -> None:
        """Everything is ready: the clock starts, now or at the common time."""
        try:
            await self.client.resolve()
        except OSError as error:
            raise UserError(
                f"{self.plan.endpoint.base_url}: the host's address cannot be found ({error})"
            ) from error
        result = self.result
        result.began_s = time.monotonic() if began_s is None else began_s
        result.began_unix_s = time.time() + result.began_s - time.monotonic()
        await self._alarm.until(result.began_s)

    def stop(self) -> None:
        """Send no more; what is under way may still end."""
        self._stopping = True
        self._stopped.set()
        self._alarm.ring_all()

    def cut(self) -> None:
        """End at once: what is under way is censored."""
        self._break_off(asyncio.CancelledError())

    def _break_off(self, fault: BaseException) -> None:
        """End at once; the first fault is raised when every connection is closed."""
        self._fault = self._fault or fault
        self.stop()

    async def _close(self, helpers: list[asyncio.Task[None]]) -> None:
        tasks = [*helpers, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()
        self._alarm.close()
        result = self.result
        result.ended_s = result.now_s()
        result.sent_all = not self._more
        for record in result.records:
            if record.end_s != record.end_s:
                record.end_s = result.ended_s
        result.records.sort(key=lambda record: record.index)

    def _drain_s(self) -> float:
        if self.plan.drain_s is not None:
            return self.plan.drain_s
        took = [r.end_s - r.sent_s for r in self.result.records if r.ok]
        return min(DRAIN_S[1], max(DRAIN_S[0], 1.5 * max(took, default=0.0)))

    async def _drain(self, until_s: float) -> None:
        while self._open and self._fault is None and self.result.now_s() < until_s:
            left_s = until_s - self.result.now_s()
            await asyncio.wait(self._open, timeout=max(0.0, min(WATCH_S, left_s)))

    # When sessions start.

    async def _send_open(self, schedule: Schedule) -> None:
        """At their times; a late generator sends at once and its lag shows."""
        for session, scheduled_s in schedule:
            await self._build_until(scheduled_s)
            await self._alarm.until(self.result.began_s + scheduled_s)
            if self._stopping:
                return
            self._spawn(self._session(session, scheduled_s))
        self._more = not schedule.complete

    async def _build_until(self, scheduled_s: float) -> None:
        """Use the time until the next send, as far as building one is sure to end before it."""
        while not self._stopping:
            left_s = scheduled_s - self.result.now_s()
            if left_s < 2 * self.requests.slowest_s + 1e-3 or not self.requests.refill():
                return
            await asyncio.sleep(0)

    def _place_clients(self) -> None:
        """Closed loop: start the clients that are wanted by now and not there."""
        wanted = self._clients_wanted(self.result.now_s())
        if len(self._clients) >= wanted:
            return
        for number in range(wanted):
            if number not in self._clients and self._more:
                self._clients.add(number)
                self._spawn(self._client(number))

    def _clients_wanted(self, now_s: float) -> int:
        arrivals = self.plan.workload.arrivals
        return self.shard.share(arrivals.clients_at(max(0.0, now_s), self.plan.send_s))

    async def _client(self, number: int) -> None:
        """Session after session until there are no more, or fewer clients are wanted."""
        free_s = self.result.now_s()
        while self._sending() and number < self._clients_wanted(self.result.now_s()):
            session = next(self._sessions, None)
            if session is None:
                self._more = False
                break
            last = await self._session(session, free_s)
            free_s = last.end_s
            if last.state == "failed":
                await asyncio.sleep(FAILURE_PAUSE_S)
                free_s = self.result.now_s()
        self._clients.discard(number)

    def _sending(self) -> bool:
        return not self._stopping and self.result.now_s() < self.plan.send_s

    async def _until_sent(self) -> None:
        """Until the time is up, or sending is stopped, or all there is was sent and answered."""
        while self._sending() and (self._more or self._open):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), WATCH_S)

    # One session, one request.

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _guarded(self, work: Coroutine[Any, Any, object]) -> None:
        """Requests record their failures: what is raised is a fault of ours."""
        try:
            await work
        except Exception as fault:
            self._break_off(fault)

    async def _session(self, session: int, scheduled_s: float) -> RequestRecord:
        """Its turns one after the other; gives the last. A failed turn ends the session."""
        content = self.content
        answers: list[str] = []
        answer = await self._request(self.requests.take(session), session, 0, scheduled_s)
        for turn in range(1, content.turns(session)):
            if not answer.record.ok:
                break
            answers.append(answer.reader.text)
            scheduled_s = answer.record.end_s + content.think_s(session, turn)
            request = self.requests.build(session, turn, answers)
            if scheduled_s < self.plan.send_s:
                await self._alarm.until(self.result.began_s + scheduled_s)
            if not self._sending():
                break
            answer = await self._request(request, session, turn, scheduled_s)
        return answer.record

    async def _request(
        self, request: Request, session: int, turn: int, scheduled_s: float
    ) -> StreamedAnswer:
        result = self.result
        record = RequestRecord(next(self._index), scheduled_s, session=session, turn=turn)
        record.wanted_prompt_tokens = request.prompt_tokens
        record.wanted_output_tokens = request.output_tokens
        result.records.append(record)
        answer = StreamedAnswer(
            record, result.began_s, self._limits, keep_text=self.content.keeps_answers
        )
        if self.schedule is None:
            asyncio.get_running_loop().call_soon(self.requests.refill)  # after the send below
        record.sent_s = result.now_s()
        try:
            await self.client.post(request.data, answer)
        except BodyStaysOpenError:
            answer.end(result.began_s + answer.heard_s)
        except HttpError as error:
            answer.fail(str(error), time.monotonic())
        except OSError as error:
            if error.errno in LIMITS:
                what, limit = LIMITS[error.errno]
                raise LoadBrokenError(
                    f"the load generator may open no more connections ({what}): lower "
                    f"concurrency= or rate=, or raise the limit with {limit}", result,
                ) from error  # fmt: skip
            answer.fail(f"{type(error).__name__}: {error}", time.monotonic())
        finally:
            record.connect_s, record.retries = answer.connect_s, answer.retries
        return answer

    # What runs beside.

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            self.client.check_times()
            if self.schedule is None and self._sending():
                self._place_clients()

    async def _tick(self) -> None:
        while self.on_tick is not None:
            await asyncio.sleep(self._tick_s)
            try:
                done = self.on_tick(self.result)
            except BaseException as fault:  # Ctrl-C too: connections are closed, then it is raised
                self._break_off(fault)
                return
            if done:
                self.result.stopped_early |= self._sending()  # what drains has been sent in time
                self.stop()
                return
