"""Requests as bytes, built before they are due, so that making content adds no lag.

The sessions to come are known from the start. Invariant: a request's bytes depend only on its
session, turn and earlier answers, never on when it was built.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load.http import request_bytes, request_head
from tuner.workload.content import Content

RESERVE_BYTES = 256 << 20
PREBUILD_S = 2.0
"""Before the start no longer than this is spent on building; the rest is built between sends."""

CLIENT_HEADERS = {
    "User-Agent": "slotune", "Accept": "text/event-stream", "Accept-Encoding": "identity",
}  # fmt: skip


class Request(NamedTuple):
    """The bytes to send, head and body, and what the body asks for."""

    data: bytes
    prompt_tokens: int
    output_tokens: int


class Requests:
    """Builds requests and keeps a reserve of first turns; sessions in the order they are taken."""

    def __init__(
        self,
        content: Content,
        endpoint: Endpoint,
        sessions: Iterable[int],
        extra_body: Mapping[str, Any] | None = None,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self.content = content
        self.slowest_s = 0.0  # what building one took at most
        self._head = request_head(endpoint.generate_url, {**endpoint.headers(), **CLIENT_HEADERS})
        self._extra = dict(extra_body or {})
        if "stream" in self._extra:
            raise UserError("the extra body may not set stream: answers are measured as streams")
        self._sessions: Iterator[int] = iter(sessions)
        self._reserve: dict[int, Request] = {}
        self._reserved_bytes, self._most_bytes = 0, reserve_bytes
        self._next = next(self._sessions, None)

    def build(self, session: int, turn: int = 0, answers: Sequence[str] = ()) -> Request:
        began_s = time.perf_counter()
        prompt_tokens, output_tokens, _ = self.content.lengths(session, turn)
        body = self.content.body(session, turn, answers) | self._extra
        data = request_bytes(self._head, orjson.dumps(body))
        self.slowest_s = max(self.slowest_s, time.perf_counter() - began_s)
        return Request(data, prompt_tokens, output_tokens)

    def take(self, session: int) -> Request:
        """The session's first turn, from the reserve where it is there."""
        request = self._reserve.pop(session, None)
        if request is not None:
            self._reserved_bytes -= len(request.data)
            return request
        while self._next is not None and self._next <= session:
            self._next = next(self._sessions, None)
        return self.build(session)

    def refill(self) -> bool:
        """Build one more; False where the reserve is full or every session is built."""
        if self._next is None or self._reserved_bytes >= self._most_bytes:
            return False
        request = self._reserve[self._next] = self.build(self._next)
        self._reserved_bytes += len(request.data)
        self._next = next(self._sessions, None)
        return True

    def prebuild(self, most: int | None = None, within_s: float = PREBUILD_S) -> None:
        """Fill the reserve, as far as that goes within the time."""
        until_s = time.monotonic() + within_s
        for _ in itertools.count() if most is None else range(most):
            if time.monotonic() > until_s or not self.refill():
                return
