"""The text side of a generation: tokens come in, text and a finish reason come out.

One Choice per sequence. Invariant: the text never shows a stop string, nor half a character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core import ScoredTokenEvent, TokenEvent
from engine.sampling_params import SamplingParams
from engine.serve.logprobs import TokenLog
from engine.tokenizer import IncrementalDetokenizer, StopMatcher


@dataclass(slots=True)
class Usage:
    """Token counts of one HTTP request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(frozen=True, slots=True)
class Echo:
    """The prompt that an answer begins with; alone: nothing is generated after it."""

    token_ids: Sequence[int]
    text: str
    alone: bool = False


@dataclass(slots=True)
class Choice:
    """One output sequence while it grows.

    finish_reason stays None until the end; stop_reason is the stop string that ended it, if any.
    log collects log-probabilities where they are asked for.
    """

    index: int
    request_id: str
    sampling: SamplingParams
    detokenizer: IncrementalDetokenizer
    log: TokenLog | None = None
    echo: Echo | None = None
    pieces: list[str] = field(default_factory=list)
    num_tokens: int = 0
    finish_reason: str | None = None
    stop_reason: str | None = None
    started: bool = False
    _matcher: StopMatcher = field(init=False)

    def __post_init__(self) -> None:
        self._matcher = StopMatcher(self.sampling.stop)

    def take(self, event: TokenEvent) -> str:
        """Take one token and return the text that may be shown now.

        A token after a stop string (computed before the engine heard of it) is dropped.
        """
        if self.finish_reason is not None:
            return ""
        if self.echo is None or self.num_tokens:
            return self._grow(event)
        shown = self._begin(self.echo, event)
        if self.echo.alone:  # the engine computes a token all the same; nobody has asked for it
            self.finish_reason = "length"
            return shown
        return shown + self._grow(event)

    def _begin(self, echo: Echo, event: TokenEvent) -> str:
        if self.log is not None:
            assert isinstance(event, ScoredTokenEvent), "the log is there because it was asked for"
            self.log.add_prompt(echo.token_ids, echo.text, event.prompt_logprobs)
        return echo.text

    def _grow(self, event: TokenEvent) -> str:
        self.num_tokens += 1
        if self.log is not None:
            assert isinstance(event, ScoredTokenEvent), "the log is there because it was asked for"
            self.log.add(event.token_id, event.logprobs)
        text = ""
        if event.finish_reason != "stop":  # the token that stops an output is not part of it
            piece = self.detokenizer.append(event.token_id)
            if self.log is not None:
                self.log.position += len(piece)
            text = self._match(piece)
        if self._matcher.stopped is not None:
            self.finish_reason, self.stop_reason = "stop", self._matcher.stopped
        elif event.finish_reason is not None:
            text += self._end(event.finish_reason)
        return text

    def _match(self, piece: str) -> str:
        if self.num_tokens <= self.sampling.min_tokens:
            return piece
        return self._matcher.feed(piece)

    def _end(self, reason: str) -> str:
        """The rest of the text; it may still complete a stop string."""
        rest = self._match(self.detokenizer.flush())
        if self._matcher.stopped is not None:
            self.finish_reason, self.stop_reason = "stop", self._matcher.stopped
            return rest
        self.finish_reason = reason
        return rest + self._matcher.flush()
