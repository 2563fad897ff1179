"""The two kinds of refusal: a start-up that cannot work, a request that cannot be served."""

from __future__ import annotations


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
