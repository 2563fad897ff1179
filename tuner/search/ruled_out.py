"""Configurations that arithmetic rules out: they are told, never started.

From what the target says of itself and what the workload needs. A rule speaks only where both its
numbers are known; what it rules out is a fault of the configuration, as sure as a crash.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.search.trials import number_of
from tuner.targets.base import Setting
from tuner.workload import Workload

Config = Mapping[str, Setting]


@dataclass(slots=True)
class Arithmetic:
    """longest: tokens that every request of some load has at least, prompt and output; 0: unknown.
    pool_tokens: of the whole KV cache, at highest_share of the device's memory; block_size: of a
    KV block, in tokens, where no setting says; 0: unknown. told: how often each reason ruled
    something out.
    """

    longest: int
    pool_tokens: int = 0
    highest_share: float = 0.0
    block_size: int = 0
    told: Counter[str] = field(default_factory=Counter)

    def why_not(self, config: Config) -> str:
        """One sentence, "" for a configuration that may work."""
        seqs, chunk = number_of(config, "max_num_seqs"), number_of(config, "chunk_size")
        if seqs is not None and chunk is not None and chunk < seqs:
            return "chunk_size below max_num_seqs: every running sequence needs a token of the step"
        tokens = self._kv_tokens(config)
        if tokens is not None and 0 < tokens < self.longest:
            return f"a KV cache of {tokens} tokens holds no single request of {self.longest} tokens"
        length = number_of(config, "max_model_len")
        if length is not None and 0 < length < self.longest:
            return (
                f"max_model_len {length:g} is less than the {self.longest} tokens of each request"
            )
        return ""

    def rules_out(self, config: Config) -> bool:
        """The same as yes or no; the reason is counted."""
        why = self.why_not(config)
        if why:
            self.told[why] += 1
        return bool(why)

    def _kv_tokens(self, config: Config) -> int | None:
        """At most: weights take their part of any share, so the pool shrinks faster than it."""
        blocks = number_of(config, "num_gpu_blocks_override")
        size = number_of(config, "block_size") or self.block_size
        if blocks and size:
            return int(blocks * size)
        if not self.pool_tokens:
            return None
        share = number_of(config, "gpu_memory_utilization")
        if share is None or not self.highest_share:
            return self.pool_tokens
        return int(self.pool_tokens * min(1.0, share / self.highest_share))


def arithmetic(
    described: Mapping[str, Any], highest_share: float, loads: Sequence[Workload]
) -> Arithmetic:
    """described: what a target says of itself; highest_share: of gpu_memory_utilization, for which
    its num_kv_blocks were allocated."""
    blocks, size = (_whole(described, name) for name in ("num_kv_blocks", "block_size"))
    longest = max((_least(load) for load in loads), default=0)
    return Arithmetic(longest, blocks * size, highest_share, size)


def _whole(described: Mapping[str, Any], name: str) -> int:
    """0 where the server tells no number."""
    told = number_of(described, name)
    return int(told) if told is not None and math.isfinite(told) else 0


def _least(load: Workload) -> int:
    """Tokens that each request has at least: a pool for fewer is too small for certain."""
    if load.source is not None:
        return 0
    bounds = []
    for lengths in (load.prompt, load.output):
        bound = {"fixed": lengths.a, "uniform": lengths.a}.get(lengths.kind)
        if bound is None:
            return 0
        bounds.append(int(bound))
    return sum(bounds)
