"""What the scheduler tells the outside: tokens for the clients, observations for the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.logprobs import Logprobs
from engine.sequence import FinishReason
from engine.stats import FinishedStats, PrefillStats


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One sampled token of one request; finish_reason is set with its last."""

    request_id: str
    token_id: int
    finish_reason: FinishReason | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class ScoredTokenEvent(TokenEvent):
    """Of a request that asks for log-probabilities.

    prompt_logprobs, all of the prompt but its first token in order, come with the first one.
    """

    logprobs: Logprobs | None
    prompt_logprobs: tuple[Logprobs, ...]


@dataclass(slots=True)
class Observations:
    """What happened since they were last taken.

    num_preempted_tokens is work really lost: what a resumed sequence has to compute again, less
    what it found in the prefix cache. It is counted when the sequence resumes.
    """

    prefilled: list[PrefillStats] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    finished: list[FinishedStats] = field(default_factory=list)
    num_preemptions: int = 0
    num_preempted_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
