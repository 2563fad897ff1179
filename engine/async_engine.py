"""The engine loop in a thread of its own, and the event loop's way to it.

Commands (add, abort, finish, call) go in through one queue and are obeyed between steps; all
tokens of a step come out in one call onto the event loop. Only the engine thread touches the core.
Invariant: every stream ends - with its tokens, a refusal, or the error that stopped the engine.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from engine.core import EngineCore, TokenEvent
from engine.errors import EngineDeadError, RequestError
from engine.metrics.engine import EngineMetrics
from engine.output_stream import OutputStream
from engine.sequence import Sequence as EngineSequence

log = logging.getLogger("engine")

Result = TypeVar("Result")
Clock = Callable[[], float]

IDLE_REPORT_S = 1.0
"""Idle time is told this often, so that its rate over a window stays between 0 and 1."""


class AsyncEngine:
    """Serves streams of tokens to an event loop.

    `start` once on the running event loop; `stop` ends the thread. `error` is what stopped the
    loop, None while all is well.
    """

    def __init__(
        self, core: EngineCore, metrics: EngineMetrics, *, clock: Clock = time.monotonic
    ) -> None:
        self.clock = clock
        self.metrics = metrics
        self.error: Exception | None = None
        self._core = core
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[str, OutputStream] = {}
        self._stopping = False
        self._unreported = True
        self._submitted = 0  # written by the event loop
        self._received = 0  # written by the engine thread
        self._told_s = 0.0  # up to here the loop's time has been told, as busy or as idle
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # -- event loop side ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve; call on the event loop that will read the streams."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def healthy(self) -> bool:
        return self.error is None and self._thread.is_alive()

    @property
    def num_streams(self) -> int:
        """Sequences whose tokens somebody waits for."""
        return len(self._streams)

    def before_scrape(self) -> None:
        """Count what was handed in since the last step began, which may last seconds."""
        handed_in = self._submitted - self._received if self.healthy else 0
        self.metrics.before_scrape(handed_in)

    async def submit(self, sequences: Sequence[EngineSequence]) -> OutputStream:
        """Queue the sequences of one HTTP request; all are admitted or RequestError is raised.

        They are queued from here on, not from when the step at hand has ended.
        """
        if self.error is not None:
            self.metrics.on_failed(len(sequences))
        self._check_alive()
        assert self._loop is not None, "start() comes first"
        now_s = self.clock()
        for sequence in sequences:
            sequence.queued_s = now_s
        self._submitted += len(sequences)
        ids = [sequence.request_id for sequence in sequences]
        stream = OutputStream(ids, loop=self._loop, abort=self._abort_from_client)
        self._streams.update(dict.fromkeys(ids, stream))
        self._commands.put(lambda: self._admit(sequences, stream))
        try:
            await stream.admitted
        except BaseException:
            stream.close()
            self._forget(ids)
            raise
        return stream

    def finish(self, stream: OutputStream, request_id: str) -> None:
        """End one sequence whose text has reached a stop string."""
        stream.discard(request_id)
        if self._streams.pop(request_id, None) is not None:
            self._commands.put(lambda: self._finish(request_id))

    async def reset_prefix_cache(self) -> None:
        """Forget all reusable KV blocks."""
        await self.call(self._core.scheduler.reset_prefix_cache)

    async def call(self, function: Callable[[], Result]) -> Result:
        """Run a function between two steps, on the engine thread; its result or exception."""
        self._check_alive()
        assert self._loop is not None, "start() comes first"
        answer: asyncio.Future[Result] = self._loop.create_future()

        def command() -> None:
            self._unreported = True
            try:
                result = function()
            except Exception as error:
                self._post(_fail, answer, error)
            else:
                self._post(_resolve, answer, result)

        self._commands.put(command)
        return await self._or_dead(answer)

    def begin_stop(self) -> None:
        """Refuse new requests and fail the running ones; returns at once."""
        if not self._stopping:
            self._stopping = True
            self._commands.put(lambda: None)
            self._fail_streams(
                EngineDeadError("the server is shutting down", status=503, code="shutting_down")
            )

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the engine thread after the step it is in."""
        self._stopping = True
        self._commands.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    async def _or_dead(self, answer: asyncio.Future[Result]) -> Result:
        """Wait for an answer that will not come if the engine dies first."""
        while not answer.done():
            await asyncio.wait((answer,), timeout=1.0)
            if not answer.done():
                self._check_alive()
        return answer.result()

    def _check_alive(self) -> None:
        if self._stopping:
            raise EngineDeadError("the server is shutting down", status=503, code="shutting_down")
        if self.error is not None:
            raise EngineDeadError(f"the engine has stopped: {_one_line(self.error)}")

    def _abort_from_client(self, request_ids: set[str]) -> None:
        self._forget(request_ids)
        self._commands.put(lambda: self._abort(request_ids, "client_disconnect"))

    def _forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._streams.pop(request_id, None)

    def _dispatch(self, events: Sequence[TokenEvent]) -> None:
        streams = self._streams
        for event in events:
            stream = streams.get(event.request_id)
            if stream is not None:
                stream.put(event)
                if event.finish_reason is not None:
                    del streams[event.request_id]

    def _fail_all(self, error: Exception) -> None:
        """After a crash: also what was handed in and never received has failed."""
        self.metrics.on_failed(self._submitted - self._received)
        self._fail_streams(error)

    def _fail_streams(self, error: Exception) -> None:
        streams, self._streams = self._streams, {}
        for stream in set(streams.values()):
            stream.fail(error)

    # -- engine thread -----------------------------------------------------------------------

    def _run(self) -> None:
        self._told_s = self.clock()
        try:
            while not self._stopping:
                self._obey()
                # A step without work computes nothing, but reports what commands have changed.
                if not self._stopping and (self._core.has_work or self._unreported):
                    self._step()
        except Exception as error:
            log.exception("the engine loop has crashed; every request fails from now on")
            self.metrics.on_crash(self._core.num_unfinished)
            self.error = error  # from here on the event loop counts what fails
            dead = EngineDeadError(f"the engine has stopped: {_one_line(error)}")
            self._post(self._fail_all, dead)

    def _obey(self) -> None:
        """Obey what is queued; wait for a command when there is nothing to do."""
        if not self._core.has_work and not self._unreported:
            self.metrics.on_busy(self._untold_s())
            self._next_command()()
        while not self._commands.empty():
            self._commands.get()()

    def _next_command(self) -> Callable[[], None]:
        """Wait for a command, and tell how long."""
        while True:
            try:
                command = self._commands.get(timeout=IDLE_REPORT_S)
            except queue.Empty:
                command = None
            self.metrics.on_idle(self._untold_s())
            if command is not None:
                return command

    def _step(self) -> None:
        self._unreported = False
        result = self._core.step(self.metrics.on_planned)
        self.metrics.on_step(result, busy_s=self._untold_s())
        if result.events:
            self._post(self._dispatch, result.events)

    def _untold_s(self) -> float:
        """Time since it was last told: what lies between two steps is the loop's work too."""
        since_s, self._told_s = self._told_s, self.clock()
        return self._told_s - since_s

    def _admit(self, sequences: Sequence[EngineSequence], stream: OutputStream) -> None:
        added: list[str] = []
        self._received += len(sequences)
        for sequence in sequences:
            try:
                self._core.add_request(sequence)
            except RequestError as error:
                self._abort(added, "sibling_refused")
                self.metrics.on_refused(error)
                self._post(stream.admit, error)
                return
            added.append(sequence.request_id)
        self._post(stream.admit, None)

    def _finish(self, request_id: str) -> None:
        self._unreported |= self._core.finish(request_id, "stop")

    def _abort(self, request_ids: Iterable[str], cause: str) -> None:
        count = sum(self._core.abort(request_id) for request_id in request_ids)
        self._unreported |= count > 0
        self.metrics.on_abort(cause, count)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        """Call on the event loop, which may have gone already at shutdown."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._stopping:
                raise


def _resolve(answer: asyncio.Future[Result], result: Result) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Result], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
