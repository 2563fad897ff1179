"""Several processes that send one load: how many, and their coordination.

Sessions are sharded i mod n on one common clock, so that together they send what one process alone
would have. Invariant: no sender outlives the load, and whatever ends it, what the senders reported
is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tuner.errors import UserError
from tuner.load.frames import End, Link, Order, Ready, Report, Start, Stop
from tuner.load.plan import LoadBrokenError, LoadPlan, LoadResult, Tick
from tuner.load.schedule import Shard
from tuner.load.stalls import LoopStalls
from tuner.records import RequestRecord
from tuner.workload.content import Content

REQUEST_COST_S, TOKEN_COST_S = 200e-6, 20e-6
"""What one request and each of its tokens take of a core, rounded up from measurements."""

CORE_SHARE = 0.5
"""A sender shall be idle half of the time, so that what comes at once is not late."""

SAMPLED_SESSIONS, SAMPLED_ARRIVALS = 64, 200_000
TICK_S = 0.5
LEAD_S = 0.05
END_S = 5.0
"""Senders that are told to end at once and have not by then are killed."""


def decide_processes(plan: LoadPlan) -> tuple[int, str]:
    """(how many processes send, the reason as a sentence).

    As many as the busiest second of an open loop needs with every sender half idle, at most all
    cores but one. A closed loop has no wanted rate: one, unless the plan says otherwise.
    """
    if plan.processes is not None:
        if plan.processes < 1:
            raise UserError(f"{plan.processes} processes cannot send: at least 1")
        return plan.processes, "as asked for"
    if plan.workload.arrivals.closed:
        return 1, "a closed loop wants no certain rate"
    rate, tokens = _peak_rate(plan), _tokens_per_session(plan)
    cores = rate * (REQUEST_COST_S + tokens * TOKEN_COST_S)
    most = max(1, len(os.sched_getaffinity(0)) - 1)
    wanted = max(1, math.ceil(cores / CORE_SHARE))
    why = f"{rate:.0f} sessions/s of {tokens:.0f} tokens take about {cores:.2g} cores"
    if wanted > most:
        why += f"; this machine has {most} for it"
    return min(wanted, most), why


def _peak_rate(plan: LoadPlan) -> float:
    """Sessions in the busiest second, as far as they are drawn here."""
    times: list[float] = []
    most = min(SAMPLED_ARRIVALS, plan.most_sessions or SAMPLED_ARRIVALS)
    for at_s in plan.workload.arrivals.times(plan.seed, plan.send_s):
        if at_s >= plan.send_s or len(times) >= most:
            break
        times.append(at_s)
    return float(np.bincount(np.array(times, dtype=np.int64)).max()) if times else 0.0


def _tokens_per_session(plan: LoadPlan) -> float:
    content = Content(plan.workload, plan.endpoint, plan.seed, plan.content_salt)
    sessions = range(min(SAMPLED_SESSIONS, plan.most_sessions or SAMPLED_SESSIONS))
    counts = [
        sum(content.lengths(session, turn)[1] for turn in range(content.turns(session)))
        for session in sessions
    ]
    return float(np.mean(counts)) if counts else 0.0


class TickError(Exception):
    """Carries what a tick raised, Ctrl-C too, past the event loop."""


def _ticked(on_tick: Tick, result: LoadResult) -> bool:
    try:
        return on_tick(result)
    except BaseException as fault:
        raise TickError from fault


class Sender:
    """One process that sends, as seen from the coordinator."""

    def __init__(self, number: int, folder: str) -> None:
        self.number = number
        self.end: End | None = None
        self.ready = False
        self.gone = False
        self._log = os.path.join(folder, f"{number}.log")
        self.own_end, other_end = socket.socketpair()
        self.own_end.setblocking(False)
        with other_end, open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuner.load.worker", str(other_end.fileno())],
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is the coordinator's to pass on
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )

    def how_it_died(self) -> str:
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return f"load process {self.number + 1} does not answer"
        with open(self._log, errors="replace") as log:
            said = log.read().strip().splitlines()[-1:]
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return f"load process {self.number + 1} ended {how}" + (f": {said[0]}" if said else "")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.own_end.close()


class Coordinator:
    """Starts the senders, gathers their records into result, ends them."""

    def __init__(self, plan: LoadPlan, processes: int, on_tick: Tick | None) -> None:
        salt = plan.content_salt if plan.content_salt is not None else os.urandom(8)
        self.plan = replace(plan, content_salt=salt)
        self.result = LoadResult(time.monotonic(), time.time(), processes=processes)
        self._processes, self._on_tick = processes, on_tick
        self._senders: list[Sender] = []
        self._links: list[Link] = []
        self._places: dict[tuple[int, int], int] = {}
        self._news = asyncio.Event()

    async def run(self) -> LoadResult:
        fault: BaseException | None = None
        with tempfile.TemporaryDirectory(prefix="slotune-load-") as folder:
            try:
                for number in range(self._processes):
                    await self._start(Sender(number, folder))
                await self._until(lambda sender: sender.ready)
                self.result.began_s = time.monotonic() + LEAD_S
                self.result.began_unix_s = time.time() + LEAD_S
                self._tell(Start(self.result.began_s))
                await self._all_ended()
            except TickError as carried:
                fault = carried.__cause__
            finally:
                await self._end()
        if fault is not None:
            raise fault
        return self.result

    async def _all_ended(self) -> None:
        """Whichever comes first: every sender's end, or what the ticks raise."""
        work = [asyncio.ensure_future(self._until(lambda sender: sender.end is not None))]
        if self._on_tick is not None:
            work.append(asyncio.ensure_future(self._tick(self._on_tick)))
        try:
            waiting = set(work)
            while work[0] in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in work:
                task.cancel()

    async def _start(self, sender: Sender) -> None:
        self._senders.append(sender)

        def take(message: object) -> None:
            self._take(sender, message)

        def lost() -> None:
            sender.gone = True
            self._news.set()

        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: Link(take, lost), sock=sender.own_end)
        self._links.append(link)
        link.send(Order(self.plan, Shard(sender.number, self._processes)))

    def _take(self, sender: Sender, message: object) -> None:
        if isinstance(message, Report):
            for record in message.records:
                self._put(record)
            return
        if isinstance(message, Ready):
            sender.ready = True
        elif isinstance(message, End):
            sender.end = message
        self._news.set()

    def _put(self, record: RequestRecord) -> None:
        """A new request at the end, one that ended in its old place."""
        records = self.result.records
        place = self._places.setdefault((record.session, record.turn), len(records))
        record.index = place
        if place == len(records):
            records.append(record)
        else:
            records[place] = record

    def _tell(self, message: object) -> None:
        for link in self._links:
            link.send(message)

    async def _until(self, done: Callable[[Sender], bool]) -> None:
        """Until it is so with every sender; LoadBrokenError where one cannot go on."""
        while not all(done(sender) for sender in self._senders):
            await self._news.wait()
            self._news.clear()
            for sender in self._senders:
                if sender.end is not None and sender.end.fault:
                    raise LoadBrokenError(sender.end.fault, self.result)
                if sender.gone and sender.end is None:
                    raise LoadBrokenError(
                        f"{sender.how_it_died()}; the other senders were stopped", self.result
                    )

    async def _tick(self, on_tick: Tick) -> None:
        await asyncio.sleep(TICK_S)
        while not _ticked(on_tick, self.result):
            await asyncio.sleep(TICK_S)
        self.result.stopped_early = self.result.now_s() < self.plan.send_s
        self._tell(Stop())

    async def _end(self) -> None:
        """Bring in what the senders still have, and leave none of them behind."""
        try:
            self._tell(Stop(now=True))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    while any(not (s.end or s.gone) for s in self._senders):
                        await self._news.wait()
                        self._news.clear()
        finally:
            for sender in self._senders:
                sender.kill()
            self._conclude()

    def _conclude(self) -> None:
        result = self.result
        ends = [sender.end for sender in self._senders if sender.end is not None]
        result.ended_s = result.now_s()
        result.sent_all = len(ends) == self._processes and all(end.sent_all for end in ends)
        result.stalls = LoopStalls.merged([end.stalls for end in ends])
        result.records.sort(key=lambda r: (r.scheduled_s, r.session, r.turn))
        for index, record in enumerate(result.records):
            record.index = index
            if record.end_s != record.end_s:
                record.end_s = result.ended_s
