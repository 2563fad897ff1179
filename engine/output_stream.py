"""The event-loop side of one HTTP request: its sequences' tokens arrive here in order.

Lives on the event loop only. Invariant: after `close` nothing of the request runs in the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from engine.core import TokenEvent


class OutputStream:
    """Tokens of one or more sequences, in arrival order, handed over in batches.

    What came while the reader was busy comes as one batch, so a slow reader falls behind in
    chunks, not in tokens.
    """

    def __init__(
        self,
        request_ids: Iterable[str],
        *,
        loop: asyncio.AbstractEventLoop,
        abort: Callable[[set[str]], None],
    ) -> None:
        self.unfinished = set(request_ids)
        self.admitted: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._abort = abort
        self._events: list[TokenEvent] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: TokenEvent) -> None:
        if event.finish_reason is not None:
            self.unfinished.discard(event.request_id)
        self._events.append(event)
        self._wake()

    def admit(self, error: Exception | None) -> None:
        """The scheduler's answer to the request."""
        if self.admitted.done():
            return
        if error is None:
            self.admitted.set_result(None)
        else:
            self.unfinished.clear()
            self.admitted.set_exception(error)

    def fail(self, error: Exception) -> None:
        """The engine can give no more tokens."""
        self._error = error
        self.unfinished.clear()
        self.admit(error)
        self._wake()

    async def next(self) -> list[TokenEvent]:
        """The tokens that arrived since the last call, at least one; raises what `fail` got."""
        while not self._events:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        events, self._events = self._events, []
        return events

    def discard(self, request_id: str) -> None:
        """A sequence that the reader has ended itself (a stop string)."""
        self.unfinished.discard(request_id)

    def close(self) -> None:
        """Abort what has not finished."""
        if self.unfinished:
            unfinished, self.unfinished = self.unfinished, set()
            self._abort(unfinished)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
