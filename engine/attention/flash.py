"""Paged attention by flash-attn on a GPU (Dao 2023): one varlen call over the block tables.

Cache layout of a layer: [2, num_blocks, block_size, kv_heads, head_dim]; flash-attn's paged form
wants block_size to be a multiple of 256 on most builds.
"""

from __future__ import annotations

import torch

from engine.attention.base import AttentionShape, HeadNorms, StepBatch
from engine.attention.torch_paged import rotated_heads

BLOCK_SIZE_MULTIPLE = 256


def supports(shape: AttentionShape) -> bool:
    """CUDA, half precision, flash-attn installed, and a block size its paged form takes."""
    if shape.device.type != "cuda" or shape.dtype is torch.float32:
        return False
    if shape.block_size % BLOCK_SIZE_MULTIPLE:
        return False
    try:
        import flash_attn  # noqa: F401
    except ImportError:
        return False
    return True


class FlashAttention:
    """See AttentionBackend."""

    name = "flash_attn"

    def __init__(self, shape: AttentionShape) -> None:
        from flash_attn import flash_attn_varlen_func

        self.shape = shape
        self._attend = flash_attn_varlen_func

    def allocate(self, num_blocks: int) -> torch.Tensor:
        config = self.shape.config
        return torch.zeros(
            (2, num_blocks, self.shape.block_size, config.num_kv_heads, config.head_dim),
            dtype=self.shape.dtype,
            device=self.shape.device,
        )

    def forward(
        self, qkv: torch.Tensor, cache: torch.Tensor, batch: StepBatch, norms: HeadNorms | None
    ) -> torch.Tensor:
        q, k, v = rotated_heads(qkv, self.shape, batch.positions, norms)
        keys, values = cache.unbind(0)
        keys.flatten(0, 1).index_copy_(0, batch.slot_mapping, k)
        values.flatten(0, 1).index_copy_(0, batch.slot_mapping, v.contiguous())
        cu_seqlens_k = torch.nn.functional.pad(batch.seq_lens.cumsum(0, dtype=torch.int32), (1, 0))
        out = self._attend(
            q, keys, values,
            cu_seqlens_q=batch.cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max(batch.query_lens), max_seqlen_k=max(batch.context_lens),
            softmax_scale=self.shape.scale, causal=True, block_table=batch.block_tables,
        )  # fmt: skip
        return torch.as_tensor(out).flatten(1)
