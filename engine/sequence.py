"""One request on its way through the engine.

The one truth: num_computed_tokens catches up with num_tokens. There is no prefill or decode flag;
chunked prefill, prefix hits and resumption after preemption are all the same catching up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from engine.kvcache.prefix_hash import PrefixNode
from engine.logprobs import Logprobs
from engine.sampling_params import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]


class SequenceStatus(Enum):
    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens, KV blocks and times of one request. Times are seconds of the engine's clock.

    token_ids holds the prompt and then what was generated. seq_id is set by the scheduler and is
    unique for the engine's life. cache_salt keeps prefix caches of different owners apart.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    arrival_s: float = 0.0
    cache_salt: str = ""
    seq_id: int = -1
    token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    prefix_nodes: list[PrefixNode] = field(default_factory=list)
    num_registered_blocks: int = 0
    max_output_tokens: int = 0
    asks_logprobs: bool = field(init=False)
    """Of its output, its prompt, or both."""
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    """Of the prompt tokens computed so far, chunk by chunk, until the first output takes them."""
    status: SequenceStatus = SequenceStatus.WAITING
    finish_reason: FinishReason | None = None
    num_preemptions: int = 0
    num_dropped_tokens: int = 0
    """Computed tokens given up by the last preemption; 0 once the sequence has resumed."""
    num_prefill_computed_tokens: int = 0
    """Tokens computed before the first output, those computed again after a preemption included."""
    queued_s: float | None = None
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None

    def __post_init__(self) -> None:
        if not self.token_ids:
            self.token_ids = list(self.prompt_token_ids)
        sampling = self.sampling
        self.asks_logprobs = sampling.logprobs is not None or sampling.prompt_logprobs is not None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Tokens whose KV is not computed yet; at least 1 while the sequence lives."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def needs_prompt_logits(self) -> bool:
        """Whether every prompt position must be computed, a cached one too: its logits are asked
        for and have not been told yet."""
        return self.sampling.prompt_logprobs is not None and self.num_output_tokens == 0

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def finished(self) -> bool:
        return self.status is SequenceStatus.FINISHED
