"""What the core reports of each step and each finished request; all that the metrics need.

Meanings follow vLLM V1: queue = first scheduled − queued, prefill = first token − first scheduled,
decode = last − first token, inference = last token − first scheduled, e2e = finish − arrival.
Durations are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.sequence import FinishReason, Sequence
from engine.stats_work import StepWork

if TYPE_CHECKING:  # the scheduler reports with these classes
    from engine.scheduler.plan import BindingLimit


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step. Gauges are taken after it; counters are this step's own increments.

    work is None for a step without tokens, and where the model's costs are not known.
    """

    num_running: int
    num_waiting: int
    num_waiting_deferred: int
    kv_usage: float
    num_free_blocks: int
    num_cached_blocks: int
    num_used_blocks: int
    num_scheduled_tokens: int
    batch_size: int
    binding_limit: BindingLimit
    num_generated_tokens: int
    num_preemptions: int
    num_preempted_tokens: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    schedule_s: float
    prepare_s: float
    forward_s: float
    sample_s: float
    postprocess_s: float
    work: StepWork | None = None


@dataclass(frozen=True, slots=True)
class PrefillStats:
    """A request whose first token has just come: TTFT and where its prompt's KV came from."""

    ttft_s: float
    num_prompt_tokens: int
    num_cached_tokens: int

    @classmethod
    def of(cls, sequence: Sequence, now_s: float) -> PrefillStats:
        ttft_s = now_s - sequence.arrival_s
        return cls(ttft_s, sequence.num_prompt_tokens, sequence.num_cached_tokens)


@dataclass(frozen=True, slots=True)
class FinishedStats:
    """A request at its end. A duration is None where the request never got that far.

    tpot_s is None for a request of one output token: there is no gap to average.
    """

    request_id: str
    finish_reason: FinishReason
    e2e_s: float
    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    inference_s: float | None
    tpot_s: float | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    max_output_tokens: int
    max_tokens_asked: int | None
    num_preemptions: int
    num_prefill_computed_tokens: int

    @classmethod
    def of(cls, sequence: Sequence, now_s: float) -> FinishedStats:
        assert sequence.finish_reason is not None
        scheduled, first, last = (
            sequence.first_scheduled_s, sequence.first_token_s, sequence.last_token_s,
        )  # fmt: skip
        decode_s = _span(first, last)
        gaps = sequence.num_output_tokens - 1
        return cls(
            request_id=sequence.request_id,
            finish_reason=sequence.finish_reason,
            e2e_s=now_s - sequence.arrival_s,
            queue_s=_span(sequence.queued_s, scheduled),
            prefill_s=_span(scheduled, first),
            decode_s=decode_s,
            inference_s=_span(scheduled, last),
            tpot_s=decode_s / gaps if decode_s is not None and gaps > 0 else None,
            num_prompt_tokens=sequence.num_prompt_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            num_output_tokens=sequence.num_output_tokens,
            max_output_tokens=sequence.max_output_tokens,
            max_tokens_asked=sequence.sampling.max_tokens,
            num_preemptions=sequence.num_preemptions,
            num_prefill_computed_tokens=sequence.num_prefill_computed_tokens,
        )


def _span(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s
