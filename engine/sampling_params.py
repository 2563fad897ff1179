"""What a request asks of the sampler and when it stops. Pure data, checked once at the door."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import RequestError

MAX_STOPS = 1024
"""Each is looked for in every token's text."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling and stopping of one request, in OpenAI's and vLLM's terms.

    temperature 0 is greedy. top_k 0 (or -1) and top_p 1 switch the filters off.
    max_tokens None means "as far as max_model_len allows". stop strings are matched by the
    service on text; EOS and stop_token_ids are matched by the scheduler on tokens. logprobs and
    prompt_logprobs: how many of the likeliest tokens to tell beside each sampled or prompt token
    (0: its own log-probability alone; None: nothing).
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def check(self) -> None:
        """Raise RequestError for the first value that is out of range."""
        if self.max_tokens is not None and self.max_tokens < 1:
            raise RequestError(
                f"max_tokens must be at least 1, got {self.max_tokens}", param="max_tokens"
            )
        if self.min_tokens < 0:
            raise RequestError(
                f"min_tokens must be at least 0, got {self.min_tokens}", param="min_tokens"
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})",
                param="min_tokens",
            )
        if not math.isfinite(self.temperature) or not 0 <= self.temperature <= 100:
            raise RequestError(
                f"temperature must be between 0 and 100, got {self.temperature}",
                param="temperature",
            )
        if not 0 < self.top_p <= 1:
            raise RequestError(
                f"top_p must be greater than 0 and at most 1, got {self.top_p}", param="top_p"
            )
        if self.top_k < -1:
            raise RequestError(
                f"top_k must be -1 or 0 (off) or at least 1, got {self.top_k}", param="top_k"
            )
        if len(self.stop) > MAX_STOPS:
            raise RequestError(
                f"stop may hold at most {MAX_STOPS} strings, got {len(self.stop)}", param="stop"
            )
        if any(not s for s in self.stop):
            raise RequestError("stop must not contain an empty string", param="stop")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0
