"""A StepPlan's shares as the flat arrays that the model reads."""

from __future__ import annotations

import torch

from engine.runner.inputs import build_batch
from engine.sampling_params import SamplingParams
from engine.scheduler.plan import ScheduledSeq


def share(
    computed: int, tokens: list[int], table: tuple[int, ...], needs_sample: bool = True
) -> ScheduledSeq:
    return ScheduledSeq(0, computed, tokens, table, needs_sample, SamplingParams(), 0)


def test_a_decode_a_chunk_and_a_whole_prompt() -> None:
    batch = build_batch(
        [
            share(17, [90], (4, 2)),
            share(15, [1, 2, 3], (0, 7), needs_sample=False),
            share(0, [5, 6], (3,)),
        ],
        block_size=16,
        device=torch.device("cpu"),
    )
    assert batch.token_ids.tolist() == [90, 1, 2, 3, 5, 6]
    assert batch.positions.tolist() == [17, 15, 16, 17, 0, 1]
    assert batch.slot_mapping.tolist() == [33, 15, 112, 113, 48, 49]
    assert batch.cu_seqlens_q.tolist() == [0, 1, 4, 6]
    assert batch.seq_lens.tolist() == [18, 18, 2]
    assert batch.block_tables.tolist() == [[4, 2], [0, 7], [3, 0]]
    assert batch.sample_rows.tolist() == [0, 5]
    assert batch.query_lens == (1, 3, 2)
    assert batch.context_lens == (18, 18, 2)
    kinds = {
        name: str(getattr(batch, name).dtype).removeprefix("torch.")
        for name in ("token_ids", "positions", "slot_mapping", "sample_rows")
    }
    assert set(kinds.values()) == {"int64"}
    assert batch.cu_seqlens_q.dtype is batch.seq_lens.dtype is torch.int32
    assert batch.block_tables.dtype is torch.int32


def test_a_block_table_longer_than_the_step_needs() -> None:
    """Look-ahead blocks are allowed; positions decide what is written."""
    batch = build_batch([share(1, [8], (6, 9, 1))], 4, torch.device("cpu"))
    assert batch.slot_mapping.tolist() == [25]
    assert batch.sample_rows.tolist() == [0]
