"""The vocabulary between scheduler and runner: one immutable StepPlan down, one StepOutput up.

Nothing else crosses. The same plan feeds the real runner and the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.logprobs import Logprobs
from engine.sampling_params import SamplingParams


class BindingLimit(StrEnum):
    """What held this step back; counted as `slotune:step_binding_limit`."""

    KV_PRESSURE = "kv_pressure"
    SEQ_CAP = "seq_cap"
    TOKEN_BUDGET = "token_budget"
    DEFERRED = "deferred"
    UNDERLOADED = "underloaded"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ScheduledSeq:
    """One sequence's share of a step.

    token_ids are the tokens to compute now: positions num_computed_tokens … + len(token_ids).
    block_table covers every position up to the last of them. needs_sample is true when the step
    brings num_computed_tokens up to num_tokens, so that its last row's logits give a new token.
    prompt_targets are prompt tokens whose log-probabilities are wanted, each told by the row of the
    token before it: the first rows of this share, in order. Empty unless the request asks.
    """

    seq_id: int
    num_computed_tokens: int
    token_ids: Sequence[int]
    block_table: Sequence[int]
    needs_sample: bool
    sampling: SamplingParams
    num_output_tokens: int
    prompt_targets: Sequence[int] = ()

    @property
    def num_scheduled_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """All the runner needs to run one step. Sequences that ran before come first in `scheduled`,
    those with one pending token ahead of the rest; then those admitted now."""

    scheduled: tuple[ScheduledSeq, ...]
    num_scheduled_tokens: int
    binding_limit: BindingLimit
    preempted_seq_ids: tuple[int, ...] = ()
    released_seq_ids: tuple[int, ...] = ()
    """Finished or aborted since the last plan: the runner drops what it keeps for them."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """seq_id → the token sampled for it; holds exactly the sequences with needs_sample.

    logprobs (of the sampled token) and prompt_logprobs (of a share's prompt_targets) hold those
    that ask for them.
    """

    sampled: Mapping[int, int]
    forward_s: float = 0.0
    sample_s: float = 0.0
    prepare_s: float = 0.0
    logprobs: Mapping[int, Logprobs] = field(default_factory=dict)
    prompt_logprobs: Mapping[int, Logprobs] = field(default_factory=dict)
