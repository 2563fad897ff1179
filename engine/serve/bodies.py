"""Response bodies, streamed and whole. Per-token bytes are put together from constant parts, so
that a token costs one JSON string and one join.

Framing: each event is `data: JSON` and an empty line; the stream ends with `data: [DONE]`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from engine.serve.choices import Choice, Usage
from engine.serve.logprobs import TokenLog

Kind = Literal["completion", "chat"]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """How token counts appear in a stream: in a last chunk, in every chunk."""

    include_usage: bool = False
    continuous_usage: bool = False


class Writer:
    """Writes the bodies of one HTTP response of the given kind."""

    def __init__(
        self, kind: Kind, response_id: str, model: str, options: UsageOptions | None = None
    ) -> None:
        self._kind = kind
        self._id = response_id
        self._model = model
        self._created = int(time.time())
        self.options = options or UsageOptions()
        suffix = ".chunk" if kind == "chat" else ""
        self._head = b"data: " + self._envelope(suffix)[:-1] + b',"choices":['
        self._end = (
            b'],"usage":null}\n\n'
            if self.options.include_usage and not self.options.continuous_usage
            else b"]}\n\n"
        )

    def opening(self, choice: Choice) -> bytes:
        """What precedes a choice's first text: for chat a chunk with the role, else nothing."""
        if self._kind == "completion":
            return b""
        body = (
            b'{"index":%d,"delta":{"role":"assistant","content":""},'
            b'"logprobs":null,"finish_reason":null}' % choice.index
        )
        return self._head + body + self._end

    def delta(self, choice: Choice, text: str, usage: Usage) -> bytes:
        """A chunk with new text, and with the finish reason once the choice has one."""
        content = orjson.dumps(text)
        reason = b"null" if choice.finish_reason is None else orjson.dumps(choice.finish_reason)
        logprobs = b"null" if choice.log is None else orjson.dumps(self._logprobs(choice.log))
        if self._kind == "chat":
            body = b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":%b}' % (
                choice.index, content, logprobs, reason,
            )  # fmt: skip
        else:
            body = b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}' % (
                choice.index, content, logprobs, reason,
            )  # fmt: skip
        if self.options.continuous_usage:
            return self._head + body + b'],"usage":' + orjson.dumps(usage.as_dict()) + b"}\n\n"
        return self._head + body + self._end

    def usage(self, usage: Usage) -> bytes:
        """The chunk that ends a stream with include_usage: no choices, the token counts."""
        return self._head + b'],"usage":' + orjson.dumps(usage.as_dict()) + b"}\n\n"

    @staticmethod
    def error(body: bytes) -> bytes:
        """A failure after the first byte has been sent."""
        return b"data: " + body + b"\n\n"

    def whole(self, choices: list[Choice], usage: Usage) -> bytes:
        """The body of a response that is not streamed."""
        return self._envelope("")[:-1] + b"," + orjson.dumps(
            {"choices": [self._choice(choice) for choice in choices], "usage": usage.as_dict()}
        )[1:]  # fmt: skip

    def _choice(self, choice: Choice) -> dict[str, Any]:
        text = "".join(choice.pieces)
        shown: dict[str, Any] = {"index": choice.index}
        if self._kind == "chat":
            shown["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            shown["text"] = text
        return shown | {
            "logprobs": None if choice.log is None else self._logprobs(choice.log),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

    def _logprobs(self, log: TokenLog) -> dict[str, Any]:
        """Of the tokens that came since the last time."""
        return log.chat_form() if self._kind == "chat" else log.completion_form()

    def _envelope(self, suffix: str) -> bytes:
        name = "chat.completion" + suffix if self._kind == "chat" else "text_completion"
        return orjson.dumps(
            {"id": self._id, "object": name, "created": self._created, "model": self._model}
        )
