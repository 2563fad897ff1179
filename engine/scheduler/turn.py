"""One sequence's part in one step: what it sends down, what comes back up, whether it ends.

Reads the sequence alone and decides nothing about the others; the scheduler does that.
"""

from __future__ import annotations

from engine.scheduler.observations import ScoredTokenEvent, TokenEvent
from engine.scheduler.plan import ScheduledSeq, StepOutput
from engine.sequence import FinishReason, Sequence


def share_of(sequence: Sequence, count: int) -> ScheduledSeq:
    """Its next count tokens, for the plan."""
    start = sequence.num_computed_tokens
    return ScheduledSeq(
        seq_id=sequence.seq_id,
        num_computed_tokens=start,
        token_ids=sequence.token_ids[start : start + count],
        block_table=tuple(sequence.block_table),
        needs_sample=start + count == len(sequence.token_ids),
        sampling=sequence.sampling,
        num_output_tokens=sequence.num_output_tokens,
        prompt_targets=_prompt_targets(sequence, count) if sequence.asks_logprobs else (),
    )


def event_of(
    sequence: Sequence, token_id: int, reason: FinishReason | None, output: StepOutput
) -> TokenEvent:
    """Its new token for the client, with the log-probabilities that the request asks for; the
    prompt's part of them is handed over once."""
    event = TokenEvent(
        sequence.request_id, token_id, reason, sequence.num_prompt_tokens,
        sequence.num_cached_tokens, sequence.num_output_tokens,
    )  # fmt: skip
    if not sequence.asks_logprobs:
        return event
    parts, sequence.prompt_logprobs = tuple(sequence.prompt_logprobs), []
    return ScoredTokenEvent(
        event.request_id, event.token_id, event.finish_reason, event.num_prompt_tokens,
        event.num_cached_tokens, event.num_output_tokens,
        output.logprobs.get(sequence.seq_id), parts,
    )  # fmt: skip


def reason_to_end(
    sequence: Sequence, token_id: int, eos_token_ids: frozenset[int]
) -> FinishReason | None:
    """Why the sequence ends with this token, its latest; None while it goes on."""
    sampling = sequence.sampling
    if sequence.num_output_tokens >= sampling.min_tokens:
        if token_id in eos_token_ids and not sampling.ignore_eos:
            return "stop"
        if token_id in sampling.stop_token_ids:
            return "stop"
    return "length" if sequence.num_output_tokens >= sequence.max_output_tokens else None


def _prompt_targets(sequence: Sequence, count: int) -> list[int]:
    """The prompt tokens that the next count rows predict, where they are asked for: the last of
    them lies in a later chunk, or after the prompt, where it is sampled."""
    if not sequence.needs_prompt_logits:
        return []
    start = sequence.num_computed_tokens + 1
    return sequence.prompt_token_ids[start : start + count]
