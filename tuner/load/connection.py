"""One connection of the HTTP client: an answer's framing, and what of it the one who asks hears.

Framing is llhttp's (httptools): chunked, by content-length or until the close; 1xx are skipped.
Invariant: a connection rests in its pool only after a complete answer with nothing after it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

if TYPE_CHECKING:
    from tuner.load.http import HttpClient

MAX_HEAD_BYTES = 64 << 10
STALE_S = 1.0
"""A reused connection that ends within this time of a send, without a byte in reply, had been
closed by the server before: the request is sent once more. Later than that the server had it."""


class HttpError(Exception):
    """The exchange failed; the text says how."""


class ConnectTimeoutError(HttpError):
    """No connection within the time allowed."""


class ConnectionLostError(HttpError):
    """stale: nothing was sent back on a connection that had been used before."""

    def __init__(self, text: str, stale: bool = False) -> None:
        super().__init__(text)
        self.stale = stale


class Answer(Protocol):
    """Takes one answer as it comes. Times are of the monotonic clock.

    connect_s: seconds spent on opening connections. retries: how often it was sent anew.
    """

    connect_s: float
    retries: int

    def head(self, status: int, headers: dict[bytes, bytes]) -> None: ...
    def body(self, data: bytes, at_s: float) -> None: ...
    def end(self, at_s: float) -> None: ...
    def overdue(self, at_s: float) -> HttpError | None: ...


class Connection(asyncio.Protocol):
    """One connection; idle unless an exchange is under way."""

    def __init__(self, pool: HttpClient) -> None:
        self._pool = pool
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.answer: Answer | None = None
        self._ended: asyncio.Future[None] | None = None
        self._used = False
        self._reset()

    def _reset(self) -> None:
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = self._status = 0
        self._complete = self._keep = self._told = False
        self._sent_s = 0.0

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, answer: Answer) -> asyncio.Future[None]:
        """Write a request; the future ends with its answer, or with an HttpError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLostError("the server closed the connection without an answer")
        self._reset()
        self.answer = answer
        self._ended = self._pool.loop.create_future()
        self._sent_s = time.monotonic()
        self._transport.write(request)
        return self._ended

    def drop(self) -> None:
        """Close without another word to whoever waits."""
        self._ended = self.answer = None
        self.close()

    def fail(self, error: Exception) -> None:
        """End the exchange under way, if there is one, and the connection with it."""
        ended, self._ended, self.answer = self._ended, None, None
        if ended is not None and not ended.done():
            ended.set_exception(error)
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pool.joined(self)

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        answer = self.answer
        if answer is None:  # nothing was asked: the server takes its leave, or is out of step
            self.close()
            return
        if not self._status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(HttpError("the server switches to another protocol"))
            return
        except httptools.HttpParserError as error:
            self._keep = False  # behind a complete answer it concerns nobody
            if not self._complete:
                self.fail(HttpError(f"the answer is no valid HTTP: {error}"))
                return
        if not self._status:
            if self._head_bytes > MAX_HEAD_BYTES:
                self.fail(HttpError(f"the answer's head exceeds {MAX_HEAD_BYTES >> 10} KiB"))
            return
        self._guarded_deliver(answer, now_s)

    def _guarded_deliver(self, answer: Answer, now_s: float) -> None:
        try:
            self._deliver(answer, now_s)
        except Exception as fault:  # of the one that takes the answer: its own to see
            self.fail(fault)

    def _deliver(self, answer: Answer, now_s: float) -> None:
        if not self._told:
            self._told = True
            answer.head(self._status, self._headers)
        if pieces := self._pieces:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            answer.body(data, now_s)
        if self._complete:
            self._finish(answer, now_s)

    def _finish(self, answer: Answer, now_s: float) -> None:
        answer.end(now_s)
        ended, self._ended, self.answer = self._ended, None, None
        self._used = True
        transport = self._transport
        if self._keep and transport is not None and transport.get_write_buffer_size() == 0:
            self._pool.rests(self)
        else:
            self.close()
        if ended is not None and not ended.done():
            ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        now_s = time.monotonic()
        self._transport = self._parser = None  # the parser holds methods of ours: a cycle
        self._pool.left(self)
        answer = self.answer
        if answer is None:
            return
        framed = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self._status and not framed and error is None:
            self._keep, self._complete = False, True  # the close is the end of such a body
            self._guarded_deliver(answer, now_s)
            return
        stale = self._used and not self._head_bytes and now_s - self._sent_s < STALE_S
        told = f" ({type(error).__name__}: {error})" if error is not None else ""
        when = "before the end of its answer" if self._head_bytes else "without an answer"
        self.fail(ConnectionLostError(f"the server closed the connection {when}{told}", stale))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._headers.clear()
        elif not self._complete:
            self._status = status

    def on_message_complete(self) -> None:
        if self._status:
            self._keep = not self._complete and self._parser.should_keep_alive()
            self._complete = True
