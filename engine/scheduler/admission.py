"""What is refused at the door: requests that could never finish, and those beyond the queue."""

from __future__ import annotations

from engine.config import SchedulerConfig
from engine.errors import RequestError
from engine.sequence import Sequence


def check_prompt(sequence: Sequence, max_model_len: int) -> None:
    """Raise RequestError (400) for a prompt that leaves no room for a token."""
    num_prompt = sequence.num_prompt_tokens
    if num_prompt == 0:
        raise RequestError("the prompt is empty: send at least one token", param="prompt")
    if num_prompt + 1 > max_model_len:
        raise RequestError(
            f"the prompt has {num_prompt} tokens; with at least one output token that exceeds the "
            f"model's maximum context length of {max_model_len} tokens (--max-model-len)",
            param="prompt",
            code="context_length_exceeded",
        )


def output_limit(sequence: Sequence, config: SchedulerConfig, usable_blocks: int) -> int:
    """Tokens the request may generate; RequestError (400) when the KV pool can never hold it.

    The last token's own KV is never needed. Without an explicit max_tokens the pool's size simply
    bounds the answer.
    """
    num_prompt = sequence.num_prompt_tokens
    room = config.max_model_len - num_prompt
    pool_tokens = usable_blocks * config.block_size
    pool_room = pool_tokens - num_prompt + 1
    asked = sequence.sampling.max_tokens
    wanted = room if asked is None else min(asked, room)
    if pool_room < 1 or (asked is not None and wanted > pool_room):
        raise RequestError(
            f"the request needs KV for {num_prompt + wanted - 1} tokens ({num_prompt} of the "
            f"prompt and up to {wanted} generated), more than the whole KV pool of {pool_tokens}: "
            "shorten it, or start the engine with more memory (--gpu-memory-utilization)",
            param="max_tokens",
            code="kv_pool_exceeded",
        )
    return min(wanted, pool_room)


def check_queue(num_waiting: int, max_num_queued_reqs: int | None) -> None:
    """Raise RequestError (503) when the queue is full."""
    if max_num_queued_reqs is not None and num_waiting >= max_num_queued_reqs:
        raise RequestError(
            f"the queue is full: {num_waiting} requests wait and --max-num-queued-reqs is "
            f"{max_num_queued_reqs}; try again later",
            code="max_num_queued_reqs",
            status=503,
        )
