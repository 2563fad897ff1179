"""Reads one streamed answer and fills its record: what counts as a token, and what as a failure.

The first token is the first chunk that carries text (reasoning text counts); role-only and empty
chunks do not. Token counts come from the server's usage and are spread over the chunks.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import orjson

from tuner.records import RequestRecord

MAX_ERROR_CHARS = 300
BROKEN_OFF = ("abort", "error")


class StreamReader:
    """Feeds SSE bytes into a record; began_s is the measurement's start on the monotonic clock."""

    def __init__(self, record: RequestRecord, began_s: float) -> None:
        self.record = record
        self._began_s = began_s
        self._buffer = b""
        self._done = False
        self._prompt_tokens = self._completion_tokens = 0

    async def read(self, chunks: AsyncIterator[bytes]) -> None:
        """Until the end of the body, then judge the whole."""
        record = self.record
        async for data in chunks:
            now_s = time.monotonic() - self._began_s
            if record.first_byte_s != record.first_byte_s:
                record.first_byte_s = now_s
            self._feed(data, now_s)
        record.end_s = time.monotonic() - self._began_s
        self._feed(b"\n\n", record.end_s)  # a last event without its blank line still counts
        self._conclude()

    def _feed(self, data: bytes, now_s: float) -> None:
        # Joined before it is replaced: a line end may be cut in two by the transport.
        self._buffer = (self._buffer + data).replace(b"\r\n", b"\n")
        *events, self._buffer = self._buffer.split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    self._event(line[5:].strip(), now_s)

    def _event(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            message = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self._fail(f"the stream holds something else than JSON: {payload[:80]!r}")
            return
        try:
            self._message(message, now_s)
        except (AttributeError, TypeError, ValueError):
            self._fail(f"the stream holds an event of unknown shape: {payload[:80]!r}")

    def _message(self, message: dict[str, Any], now_s: float) -> None:
        if message.get("error") or message.get("object") == "error":
            error = message.get("error") or message.get("message")
            error = (error.get("message") or error) if isinstance(error, dict) else error
            self._fail(f"error in the stream: {one_line(str(error))}")
            return
        if usage := message.get("usage"):
            self._prompt_tokens = int(usage.get("prompt_tokens") or 0)
            self._completion_tokens = int(usage.get("completion_tokens") or 0)
        for choice in message.get("choices") or ():
            self._choice(choice, now_s)

    def _choice(self, choice: dict[str, Any], now_s: float) -> None:
        record = self.record
        delta = choice.get("delta") or {}
        answer = choice.get("text") or delta.get("content") or ""
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if answer or thought:
            if not record.chunk_times_s:
                record.first_token_s = now_s
            if answer and record.first_answer_token_s != record.first_answer_token_s:
                record.first_answer_token_s = now_s
            record.chunk_times_s.append(now_s)
            record.chunk_tokens.append(1)
        if choice.get("finish_reason"):
            record.finish_reason = str(choice["finish_reason"])

    def _conclude(self) -> None:
        record = self.record
        if record.error:
            return
        if record.finish_reason in BROKEN_OFF:
            self._fail(f"the server ended the answer with finish_reason {record.finish_reason!r}")
        elif not record.chunk_times_s:
            self._fail("the answer is empty")
        elif not record.finish_reason and not self._done:
            self._fail("the stream ended before its end (no finish_reason, no [DONE])")
        else:
            self._count_tokens()
            record.state = "ok"

    def _count_tokens(self) -> None:
        record = self.record
        record.prompt_tokens = max(0, self._prompt_tokens)
        record.counted_by_server = self._completion_tokens > 0
        chunks = len(record.chunk_times_s)
        record.output_tokens = self._completion_tokens if record.counted_by_server else chunks
        spread_tokens(record)

    def _fail(self, error: str) -> None:
        self.record.state = "failed"
        self.record.error = self.record.error or error


def one_line(text: str) -> str:
    """What a server said, fit for a line of a terminal: bounded, no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_ERROR_CHARS]


def spread_tokens(record: RequestRecord) -> None:
    """Spread the server's token count evenly over the chunks, so that their sum is the count."""
    chunks, tokens = len(record.chunk_times_s), record.output_tokens
    if chunks and tokens != chunks:
        ends = [-(-(i + 1) * tokens // chunks) for i in range(chunks)]  # rounded up: the first ≥ 1
        record.chunk_tokens = [end - start for start, end in zip([0, *ends], ends, strict=False)]
