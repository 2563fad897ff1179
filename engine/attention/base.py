"""What the model needs of attention: a cache per layer, and one call per layer and step.

A backend owns the cache's layout. It rotates q and k, writes k and v to their slots, and attends
causally over each sequence's block table; sequences are told apart by cu_seqlens_q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.layers.rotary import RotaryTable
from engine.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class StepBatch:
    """A step's inputs on the device; S sequences, T tokens in all, sequence after sequence.

    token_ids, positions, slot_mapping int64 [T]; cu_seqlens_q int32 [S+1]; seq_lens int32 [S]
    (context after this step); block_tables int32 [S, max_blocks]; sample_rows int64 [n]: the rows
    whose logits are wanted.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    cu_seqlens_q: torch.Tensor
    seq_lens: torch.Tensor
    block_tables: torch.Tensor
    sample_rows: torch.Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]

    @property
    def num_seqs(self) -> int:
        return len(self.query_lens)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Qwen3's normalisation of each query and key head, float32 weights [head_dim]."""

    query: torch.Tensor
    key: torch.Tensor
    eps: float


class AttentionBackend(Protocol):
    """name is shown in /server_info and metrics."""

    name: str

    def allocate(self, num_blocks: int) -> torch.Tensor:
        """One layer's cache for num_blocks blocks."""
        ...

    def forward(
        self, qkv: torch.Tensor, cache: torch.Tensor, batch: StepBatch, norms: HeadNorms | None
    ) -> torch.Tensor:
        """qkv [T, (heads + 2 kv_heads) · head_dim] → [T, heads · head_dim]; may overwrite qkv."""
        ...


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Everything a backend is built from."""

    config: ModelConfig
    block_size: int
    dtype: torch.dtype
    device: torch.device
    rotary: RotaryTable

    @property
    def q_size(self) -> int:
        return self.config.num_heads * self.config.head_dim

    @property
    def kv_size(self) -> int:
        return self.config.num_kv_heads * self.config.head_dim

    @property
    def scale(self) -> float:
        return float(self.config.head_dim**-0.5)
