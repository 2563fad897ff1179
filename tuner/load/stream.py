"""Reads one streamed answer and fills its record: what counts as a token, and what as a failure.

The first token is the first chunk that carries text (reasoning and tool calls count); role-only and
empty chunks do not. Token counts come from the server's usage and are spread over the chunks.
"""

from __future__ import annotations

import math
from typing import Any

import orjson

from tuner.load.shape import Shape, learn
from tuner.load.sse import MAX_EVENT_BYTES, EventCutter, EventTooLargeError, payloads
from tuner.printable import one_line
from tuner.records import MOST_TOKENS, RequestRecord, spread_tokens

BROKEN_OFF = ("abort", "error")
FEW_TOKENS, TIMES_WANTED = 10_000, 10
"""More than both – so many, and so many times what was asked for – no honest server sends or counts
for one answer."""

CHUNKS_PER_SHAPE = 8
"""A shape is learned at most once in so many chunks: where each event differs it would not pay."""


class StreamReader:
    """Feeds SSE bytes into a record. Times are seconds since the measurement began.

    keep_text: collect the answer's text (without reasoning). fast False parses every event in full.
    """

    __slots__ = (
        "_completion_tokens", "_cutter", "_done", "_learn_at", "_prompt_tokens", "_shape", "_texts",
        "record",
    )  # fmt: skip

    def __init__(
        self, record: RequestRecord, *, keep_text: bool = False, fast: bool = True
    ) -> None:
        self.record = record
        self._cutter = EventCutter()
        self._done = False
        self._prompt_tokens = self._completion_tokens = 0
        self._texts: list[str] | None = [] if keep_text else None
        self._shape: Shape | None = None
        self._learn_at: float = 1 if fast else math.inf  # chunks

    @property
    def done(self) -> bool:
        """Whether the server has said [DONE]."""
        return self._done

    @property
    def most_tokens(self) -> int:
        """More than any answer to this request can hold."""
        return max(FEW_TOKENS, TIMES_WANTED * self.record.wanted_output_tokens)

    @property
    def text(self) -> str:
        """The answer so far; empty unless it is kept."""
        return "".join(self._texts or ())

    def feed(self, data: bytes, at_s: float) -> None:
        """Bytes of the body that arrived at at_s."""
        record = self.record
        if record.first_byte_s != record.first_byte_s:
            record.first_byte_s = at_s
        try:
            events = self._cutter.feed(data)
        except EventTooLargeError:
            self._cutter = EventCutter()
            return self.fail(f"the stream holds an event of more than {MAX_EVENT_BYTES >> 20} MiB")
        for event in events:
            shape = self._shape
            text = shape.text_of(event) if shape is not None else None
            if shape is None or text is None:
                self._event(event, at_s)
            else:
                self._token(at_s, shape.answer)
                if self._texts is not None and shape.answer:
                    self._texts.append(text.decode())
        return None

    def end(self, at_s: float) -> None:
        """The body has ended whole: judge it."""
        self.record.end_s = at_s
        for event in self._cutter.end():
            self._event(event, at_s)
        self._conclude()

    def fail(self, error: str) -> None:
        """The first failure is the one that is told."""
        self.record.state = "failed"
        self.record.error = self.record.error or error

    def _token(self, at_s: float, answer: bool) -> None:
        record = self.record
        if not record.chunk_times_s:
            record.first_token_s = at_s
        if answer and record.first_answer_token_s != record.first_answer_token_s:
            record.first_answer_token_s = at_s
        record.chunk_times_s.append(at_s)
        record.chunk_tokens.append(1)

    def _event(self, event: bytes, at_s: float) -> None:
        """In full. Data of several lines is one document or, where that is none, one a line."""
        lines, kind = payloads(event)
        whole = b"\n".join(lines)
        if len(lines) > 1 and not _is_json(whole):
            for line in lines:
                self._payload(line, at_s)
        elif lines:
            self._payload(whole, at_s, event)
        if kind == "error":
            self.fail(f"error in the stream: {one_line(whole.decode(errors='replace'))}")

    def _payload(self, payload: bytes, at_s: float, event: bytes = b"") -> None:
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            message = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self.fail(f"the stream holds something else than JSON: {payload[:80]!r}")
            return
        try:
            path = self._message(message, at_s)
        except (AttributeError, TypeError, ValueError):
            self.fail(f"the stream holds an event of unknown shape: {payload[:80]!r}")
            return
        if path and event and len(self.record.chunk_times_s) >= self._learn_at:
            self._learn_at = len(self.record.chunk_times_s) + CHUNKS_PER_SHAPE
            self._shape = learn(event, message, path) or self._shape

    def _message(self, message: dict[str, Any], at_s: float) -> tuple[str, ...]:
        """The path of the text in the first choice where that is all the message holds."""
        if message.get("error") or message.get("object") == "error":
            error = message.get("error") or message.get("message")
            error = (error.get("message") or error) if isinstance(error, dict) else error
            self.fail(f"error in the stream: {one_line(str(error))}")
            return ()
        if usage := message.get("usage"):
            self._prompt_tokens = int(usage.get("prompt_tokens") or 0)
            self._completion_tokens = int(usage.get("completion_tokens") or 0)
        path: tuple[str, ...] = ()
        choices = message.get("choices") or ()
        for choice in choices:
            path = self._choice(choice, at_s)
        return path if len(choices) == 1 and not usage else ()

    def _choice(self, choice: dict[str, Any], at_s: float) -> tuple[str, ...]:
        delta = choice.get("delta") or {}
        answer = choice.get("text") or delta.get("content") or ""
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        if not (isinstance(answer, str) and isinstance(thought, str)):
            raise TypeError("text that is no string")
        called = _calls_a_tool(delta)
        if answer or thought or called:
            self._token(at_s, bool(answer) or called)
            if answer and self._texts is not None:
                self._texts.append(answer)
        if finish := choice.get("finish_reason"):
            self.record.finish_reason = one_line(str(finish))
        if finish or called or bool(answer) == bool(thought):
            return ()
        return _path_of(choice, delta)

    def _conclude(self) -> None:
        record = self.record
        if record.error:
            return
        if record.finish_reason in BROKEN_OFF:
            self.fail(f"the server ended the answer with finish_reason {record.finish_reason!r}")
        elif not record.chunk_times_s:
            self.fail("the answer is empty")
        elif not record.finish_reason and not self._done:
            self.fail("the stream ended before its end (no finish_reason, no [DONE])")
        elif why := self._unbelievable():
            self.fail(why)
        else:
            self._count_tokens()
            record.state = "ok"

    def _unbelievable(self) -> str:
        """What a usage says that no answer to this request can hold; "" for one that can be."""
        wanted, chunks = self.record.wanted_output_tokens, len(self.record.chunk_times_s)
        if self._completion_tokens > max(self.most_tokens, TIMES_WANTED * chunks):
            return (
                f"the usage tells {self._completion_tokens:.4g} output tokens where {wanted} were "
                f"asked for and {chunks} chunks came"
            )
        if self._prompt_tokens > MOST_TOKENS:
            return f"the usage tells {self._prompt_tokens:.4g} prompt tokens"
        return ""

    def _count_tokens(self) -> None:
        record = self.record
        record.prompt_tokens = max(0, self._prompt_tokens)
        record.counted_by_server = self._completion_tokens > 0
        chunks = len(record.chunk_times_s)
        record.output_tokens = self._completion_tokens if record.counted_by_server else chunks
        if record.output_tokens != chunks:  # else one a chunk, as it was noted
            record.chunk_tokens = spread_tokens(record.output_tokens, chunks)


def _calls_a_tool(delta: dict[str, Any]) -> bool:
    """Whether a chunk carries a part of a tool call: its name, or text of its arguments."""
    calls = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
    return any(call.get("name") or call.get("arguments") for call in calls)


def _path_of(choice: dict[str, Any], delta: dict[str, Any]) -> tuple[str, ...]:
    """Where the one text of a choice stands."""
    if choice.get("text"):
        return ("text",)
    for key in ("content", "reasoning_content", "reasoning"):
        if delta.get(key):
            return ("delta", key)
    return ()


def _is_json(payload: bytes) -> bool:
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return False
    return True
