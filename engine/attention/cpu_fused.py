"""Paged attention by the fused CPU kernels: reads the cache in place, one call for all sequences.

Cache layout of a layer: [num_blocks, 2, kv_heads, block_size * head_dim], K transposed; see
kernels/fused.cpp.
"""

from __future__ import annotations

import ctypes

import torch

from engine.attention.base import AttentionShape, HeadNorms, StepBatch

HEAD_DIMS = (16, 32, 64, 80, 96, 128, 256)
MAX_GROUP = 32


def supports(shape: AttentionShape) -> bool:
    """Whether the kernels have an instance for this model and block size."""
    config = shape.config
    return (
        shape.device.type == "cpu"
        and shape.dtype in (torch.bfloat16, torch.float32)
        and shape.block_size % 16 == 0
        and config.head_dim in HEAD_DIMS
        and config.num_heads // config.num_kv_heads <= MAX_GROUP
    )


class FusedCpuAttention:
    """See AttentionBackend."""

    name = "cpu_fused"

    def __init__(self, shape: AttentionShape, kernels: ctypes.CDLL) -> None:
        self.shape = shape
        self.kernels = kernels
        self._is_bf16 = shape.dtype is torch.bfloat16

    def allocate(self, num_blocks: int) -> torch.Tensor:
        config, block = self.shape.config, self.shape.block_size
        return torch.empty(  # untouched memory costs nothing until a block is first used
            (num_blocks, 2, config.num_kv_heads, block * config.head_dim), dtype=self.shape.dtype
        )

    def forward(
        self, qkv: torch.Tensor, cache: torch.Tensor, batch: StepBatch, norms: HeadNorms | None
    ) -> torch.Tensor:
        config, rotary = self.shape.config, self.shape.rotary
        out = torch.empty((len(qkv), self.shape.q_size), dtype=qkv.dtype)
        self.kernels.slotune_rope_and_store(
            self._is_bf16, qkv.data_ptr(), batch.positions.data_ptr(),
            batch.slot_mapping.data_ptr(), rotary.cos.data_ptr(), rotary.sin.data_ptr(),
            norms.query.data_ptr() if norms else None, norms.key.data_ptr() if norms else None,
            norms.eps if norms else 0.0, cache.data_ptr(), len(qkv), config.num_heads,
            config.num_kv_heads, config.head_dim, self.shape.block_size,
        )  # fmt: skip
        failed = self.kernels.slotune_paged_attention(
            self._is_bf16, qkv.data_ptr(), cache.data_ptr(), batch.block_tables.data_ptr(),
            batch.block_tables.shape[1], batch.cu_seqlens_q.data_ptr(), batch.seq_lens.data_ptr(),
            batch.num_seqs, out.data_ptr(), config.num_heads, config.num_kv_heads,
            config.head_dim, self.shape.block_size, self.shape.scale,
        )  # fmt: skip
        assert not failed, "supports() has promised these shapes"
        return out
