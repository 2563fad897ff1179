"""Paged attention in plain torch: gathers each sequence's blocks and uses SDPA.

Runs everywhere and is the reference the faster backends are tested against.
Cache layout of a layer: [num_blocks, block_size, 2, kv_heads, head_dim].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.attention.base import AttentionShape, HeadNorms, StepBatch
from engine.layers.norm import rms_norm


class TorchPagedAttention:
    """See AttentionBackend."""

    name = "torch_sdpa"

    def __init__(self, shape: AttentionShape) -> None:
        self.shape = shape

    def allocate(self, num_blocks: int) -> torch.Tensor:
        config = self.shape.config
        return torch.zeros(
            (num_blocks, self.shape.block_size, 2, config.num_kv_heads, config.head_dim),
            dtype=self.shape.dtype,
            device=self.shape.device,
        )

    def forward(
        self, qkv: torch.Tensor, cache: torch.Tensor, batch: StepBatch, norms: HeadNorms | None
    ) -> torch.Tensor:
        q, k, v = rotated_heads(qkv, self.shape, batch.positions, norms)
        rows = cache.view(-1, 2, *cache.shape[3:])
        rows[batch.slot_mapping] = torch.stack((k, v), dim=1)
        out = torch.empty_like(q)
        start = 0
        for index, (queries, context) in enumerate(
            zip(batch.query_lens, batch.context_lens, strict=True)
        ):
            keys, values = self._gather(cache, batch.block_tables[index], context)
            out[start : start + queries] = self._attend(q[start : start + queries], keys, values)
            start += queries
        return out.reshape(len(out), -1)

    def _gather(
        self, cache: torch.Tensor, block_table: torch.Tensor, context: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [context, kv_heads, head_dim] of one sequence."""
        blocks = block_table[: -(-context // self.shape.block_size)].long()
        tokens = cache.index_select(0, blocks).flatten(0, 1)[:context]
        return tokens[:, 0], tokens[:, 1]

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal at the end: the last query sees all of the context. Shapes [n, heads, dim]."""
        queries, context = len(q), len(k)
        mask = None
        if 1 < queries < context:
            mask = torch.ones(queries, context, dtype=torch.bool, device=q.device)
            mask = mask.tril(context - queries)
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1).unsqueeze(0),
            k.transpose(0, 1).unsqueeze(0),
            v.transpose(0, 1).unsqueeze(0),
            attn_mask=mask,
            is_causal=mask is None and queries > 1,
            scale=self.shape.scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return out.squeeze(0).transpose(0, 1)


def rotated_heads(
    qkv: torch.Tensor, shape: AttentionShape, positions: torch.Tensor, norms: HeadNorms | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [T, heads, dim], k and v [T, kv_heads, dim]; q and k normed (Qwen3) and rotated."""
    q, k, v = torch.split(qkv, [shape.q_size, shape.kv_size, shape.kv_size], dim=-1)
    heads = (len(qkv), -1, shape.config.head_dim)
    q, k, v = q.reshape(heads), k.reshape(heads), v.reshape(heads)
    if norms is not None:
        q = rms_norm(q, norms.query.to(q.dtype), norms.eps)
        k = rms_norm(k, norms.key.to(k.dtype), norms.eps)
    return shape.rotary.rotate(q, positions), shape.rotary.rotate(k, positions), v
