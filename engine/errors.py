"""The kinds of refusal: a start-up that cannot work, a request that cannot be served, an engine
that has stopped."""

from __future__ import annotations

import re

_MOST_CHARS = 80
_ENDLESS_WORD = re.compile(r"\S{300,}")


def readable(text: str) -> str:
    """What is told on a terminal: without control characters; of a word that no line holds, both
    ends."""
    plain = "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return _ENDLESS_WORD.sub(lambda word: f"{word[0][:200]}…{word[0][-60:]}", plain)


def shown(value: object) -> str:
    """What a client gave, as a refusal repeats it."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 3]}..."


class EngineConfigError(ValueError):
    """A start-up setting that cannot work; the message says what, where and what would be right."""


class RequestError(ValueError):
    """A request that is refused before it enters the queue; becomes an OpenAI-style HTTP error."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str = "invalid_value",
        status: int = 400,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


class EngineDeadError(RuntimeError):
    """The engine loop has crashed or is shutting down; becomes an HTTP 500 or 503."""

    def __init__(self, message: str, *, status: int = 500, code: str = "engine_dead") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
