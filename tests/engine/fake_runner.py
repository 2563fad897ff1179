"""A scripted model behind the Runner protocol: it repeats its prompt, token by token.

It keeps a KV "cache" of token ids addressed through the block tables, and reads its whole context
back from there: a wrong block table, position or cached prefix gives a wrong token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from engine.logprobs import Logprobs
from engine.scheduler.plan import ScheduledSeq, StepOutput, StepPlan

EOS = 256
VOCAB_SIZE = 258


def logprob_of(token_id: int) -> float:
    """What the scripted model claims of a token, wherever it stands; exact in float32."""
    return -(token_id + 1) / 64


def logprobs_of(token_ids: Sequence[int], top: int) -> Logprobs:
    return Logprobs(
        np.array([logprob_of(token_id) for token_id in token_ids], np.float32),
        np.tile(np.arange(top, dtype=np.int32), (len(token_ids), 1)),
        np.tile(np.array([logprob_of(t) for t in range(top)], np.float32), (len(token_ids), 1)),
    )


@dataclass
class FakeRunner:
    """step_s delays each step; `gate` closed stops them; `crash` raises in the next one."""

    num_kv_blocks: int = 64
    block_size: int = 16
    max_model_len: int = 256
    step_s: float = 0.0
    crash: Exception | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    device_name: str = "scripted"
    attention_backend: str = "none"
    num_threads: int = 1

    def __post_init__(self) -> None:
        self.gate.set()
        self.num_steps = 0
        self._kv = [-1] * (self.num_kv_blocks * self.block_size)
        self.model_info = SimpleNamespace(
            architecture="scripted",
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=1,
            hidden_size=1,
            vocab_size=VOCAB_SIZE,
            max_model_len=self.max_model_len,
            eos_token_ids=frozenset({EOS}),
            dtype="float32",
            num_parameters=0,
            num_layer_parameters=0,
            element_bytes=4,
        )
        kv_bytes = 8 * self.block_size * self.num_kv_blocks
        self.memory = _Memory(
            device_memory_bytes=kv_bytes + 300,
            weights_bytes=100,
            activation_bytes=50,
            kv_bytes_per_token=8,
            kv_cache_bytes=kv_bytes,
            num_kv_blocks=self.num_kv_blocks,
        )

    def device_peak(self) -> SimpleNamespace:
        return SimpleNamespace(flops_per_s=1e12, bytes_per_s=1e10)

    def num_kv_blocks_at(self, gpu_memory_utilization: float) -> int:
        return min(self.num_kv_blocks, max(1, round(self.num_kv_blocks * gpu_memory_utilization)))

    def execute(self, plan: StepPlan) -> StepOutput:
        self.gate.wait()
        if self.step_s:
            time.sleep(self.step_s)
        if self.crash is not None:
            raise self.crash
        self.num_steps += 1
        for scheduled in plan.scheduled:
            self._store(scheduled)
        sampled = {s.seq_id: self._next_token(s) for s in plan.scheduled if s.needs_sample}
        return StepOutput(
            sampled=sampled,
            forward_s=self.step_s,
            logprobs={
                s.seq_id: logprobs_of([sampled[s.seq_id]], s.sampling.logprobs)
                for s in plan.scheduled
                if s.needs_sample and s.sampling.logprobs is not None
            },
            prompt_logprobs={
                s.seq_id: logprobs_of(s.prompt_targets, s.sampling.prompt_logprobs or 0)
                for s in plan.scheduled
                if s.prompt_targets
            },
        )

    def _slot(self, scheduled: ScheduledSeq, position: int) -> int:
        block = scheduled.block_table[position // self.block_size]
        return block * self.block_size + position % self.block_size

    def _store(self, scheduled: ScheduledSeq) -> None:
        for offset, token_id in enumerate(scheduled.token_ids):
            position = scheduled.num_computed_tokens + offset
            self._kv[self._slot(scheduled, position)] = token_id

    def _next_token(self, scheduled: ScheduledSeq) -> int:
        length = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens
        prompt_length = length - scheduled.num_output_tokens
        position = scheduled.num_output_tokens % prompt_length
        return self._kv[self._slot(scheduled, position)]


@dataclass(frozen=True)
class _Memory:
    device_memory_bytes: int
    weights_bytes: int
    activation_bytes: int
    kv_bytes_per_token: int
    kv_cache_bytes: int
    num_kv_blocks: int
