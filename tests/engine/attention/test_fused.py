"""The fused CPU kernels against plain torch, on every shape they claim to support."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from engine.attention.base import AttentionShape, HeadNorms, StepBatch
from engine.attention.cpu_fused import FusedCpuAttention, supports
from engine.attention.torch_paged import TorchPagedAttention
from engine.kernels import build
from engine.layers.norm import RMSNorm, rms_norm
from engine.layers.rotary import RotaryTable
from engine.models.config import ModelConfig
from engine.runner.inputs import build_batch
from engine.sampling_params import SamplingParams
from engine.scheduler.plan import ScheduledSeq

KERNELS = build.load()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler: no fused kernels")

CONFIG = ModelConfig(
    family="llama", hidden_size=64, intermediate_size=64, num_layers=1, num_heads=6,
    num_kv_heads=2, head_dim=64, vocab_size=100, max_model_len=300, rms_norm_eps=1e-5,
    rope_theta=1e4, rope_scaling=None, eos_token_ids=frozenset(), tie_word_embeddings=True,
    qkv_bias=False, qk_norm=False, torch_dtype="float32",
)  # fmt: skip


def shape(block_size: int, dtype: torch.dtype, config: ModelConfig) -> AttentionShape:
    device = torch.device("cpu")
    rotary = RotaryTable(config, config.max_model_len, device)
    return AttentionShape(config, block_size, dtype, device, rotary)


def batch(spans: list[tuple[int, int]], block_size: int) -> StepBatch:
    """spans: (tokens already computed, tokens of this step) of each sequence."""
    shares, free = [], 0
    for index, (computed, count) in enumerate(spans):
        blocks = math.ceil((computed + count) / block_size)
        table = tuple(range(free, free + blocks))[::-1]
        free += blocks
        shares.append(ScheduledSeq(index, computed, [1] * count, table, True, SamplingParams(), 0))
    return build_batch(shares, block_size, torch.device("cpu"))


def run_both(
    made: AttentionShape, spans: list[tuple[int, int]], norms: HeadNorms | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fill the context step by step through each backend, then compare the last step."""
    assert KERNELS is not None
    torch.manual_seed(0)
    width = made.q_size + 2 * made.kv_size
    results = []
    inputs = [
        torch.randn(sum(c for c, _ in spans), width).to(made.dtype),
        torch.randn(sum(n for _, n in spans), width).to(made.dtype),
    ]
    for backend in (FusedCpuAttention(made, KERNELS), TorchPagedAttention(made)):
        cache = backend.allocate(64)
        if isinstance(backend, FusedCpuAttention):
            cache.fill_(float("nan"))  # what was never written must never be seen
        tables = batch(spans, made.block_size)
        if rows := [i for i, (computed, _) in enumerate(spans) if computed]:
            lengths = [spans[i][0] for i in rows]
            context = replace(
                batch([(0, length) for length in lengths], made.block_size),
                block_tables=tables.block_tables[rows],
                slot_mapping=slots(tables.block_tables[rows], lengths, made),
            )
            backend.forward(inputs[0].clone(), cache, context, norms)
        results.append(backend.forward(inputs[1].clone(), cache, tables, norms))
    return results[0], results[1]


def slots(tables: torch.Tensor, lengths: list[int], made: AttentionShape) -> torch.Tensor:
    size = made.block_size
    return torch.tensor(
        [int(tables[row, p // size]) * size + p % size
         for row, length in enumerate(lengths) for p in range(length)]
    )  # fmt: skip


MIXES = [
    [(0, 1)],
    [(0, 37)],
    [(16, 1), (31, 1), (100, 1)],
    [(5, 1), (0, 20), (40, 33), (15, 1)],
]


@pytest.mark.parametrize("spans", MIXES)
@pytest.mark.parametrize("block_size", [16, 32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mixed_batches(spans: list[tuple[int, int]], block_size: int, dtype: torch.dtype) -> None:
    fused, plain = run_both(shape(block_size, dtype, CONFIG), spans)
    tolerance = 2e-5 if dtype is torch.float32 else 3e-2
    torch.testing.assert_close(fused.float(), plain.float(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("head_dim", [16, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (8, 2), (14, 2)])
def test_head_shapes(head_dim: int, heads: tuple[int, int]) -> None:
    config = replace(CONFIG, head_dim=head_dim, num_heads=heads[0], num_kv_heads=heads[1])
    fused, plain = run_both(shape(16, torch.float32, config), MIXES[3])
    torch.testing.assert_close(fused, plain, atol=3e-5, rtol=3e-5)


def test_query_and_key_norms() -> None:
    norms = HeadNorms(torch.rand(64) + 0.5, torch.rand(64) + 0.5, 1e-6)
    fused, plain = run_both(shape(16, torch.float32, CONFIG), MIXES[3], norms)
    torch.testing.assert_close(fused, plain, atol=3e-5, rtol=3e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm(dtype: torch.dtype) -> None:
    x, weight = torch.randn(33, 576).to(dtype), torch.rand(576).to(dtype)
    expected = rms_norm(x.float(), weight.float(), 1e-5)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(
        RMSNorm(weight, 1e-5)(x).float(), expected, atol=tolerance, rtol=tolerance
    )


@pytest.mark.parametrize("block_size", [1, 8, 24])
def test_odd_block_sizes_are_left_to_torch(block_size: int) -> None:
    assert not supports(shape(block_size, torch.float32, CONFIG))
