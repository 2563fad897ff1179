"""Live changes of the scheduler's limits: what is refused, and what follows the KV cap.

Invariant: after a change every admitted request can still run to its end alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.config import SchedulerConfig, budget_fault
from engine.errors import RequestError
from engine.kvcache.manager import KVCacheManager
from engine.scheduler import admission
from engine.sequence import Sequence


def check_limits(config: SchedulerConfig) -> None:
    """Raise RequestError (400) for limits that can never work."""
    if config.max_num_seqs < 1:
        raise RequestError(
            f"max_num_seqs must be at least 1, got {config.max_num_seqs}", param="max_num_seqs"
        )
    if fault := budget_fault(config.max_num_seqs, config.chunk_size):
        raise RequestError(fault, param="chunk_size")


def check_cap(cap: int, kv: KVCacheManager, admitted: Iterable[Sequence]) -> None:
    """Raise RequestError (400) for a KV-block cap outside the pool or below a promise.

    A request with max_tokens was promised room for all of them; one without was promised nothing
    beyond the tokens it has.
    """
    if not 1 <= cap <= kv.pool.num_blocks:
        raise RequestError(
            f"the KV-block cap must be between 1 and {kv.pool.num_blocks}, got {cap}",
            param="gpu_memory_utilization",
        )
    needed = max((_promised_blocks(sequence, kv) for sequence in admitted), default=0)
    if cap < needed:
        raise RequestError(
            f"a cap of {cap} KV blocks is too low: an admitted request may need {needed}; "
            "wait until it has ended",
            param="gpu_memory_utilization",
        )


def follow_cap(config: SchedulerConfig, cap: int, admitted: Iterable[Sequence]) -> None:
    """Let requests without max_tokens run as far as the changed pool allows."""
    for sequence in admitted:
        if sequence.sampling.max_tokens is None:
            sequence.max_output_tokens = admission.output_limit(sequence, config, cap)


def _promised_blocks(sequence: Sequence, kv: KVCacheManager) -> int:
    if sequence.sampling.max_tokens is None:
        return kv.blocks_for(sequence.num_tokens)
    return kv.blocks_for(sequence.num_prompt_tokens + sequence.max_output_tokens - 1)
