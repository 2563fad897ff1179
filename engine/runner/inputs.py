"""Turns a StepPlan into the flat arrays that the model reads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from engine.attention.base import StepBatch
from engine.scheduler.plan import ScheduledSeq


def build_batch(
    scheduled: Sequence[ScheduledSeq], block_size: int, device: torch.device
) -> StepBatch:
    """The step's inputs on the device, in the plan's order."""
    query_lens = tuple(len(share.token_ids) for share in scheduled)
    starts = np.fromiter((s.num_computed_tokens for s in scheduled), np.int64, len(scheduled))
    lens = np.array(query_lens, dtype=np.int64)
    cu_seqlens = np.zeros(len(scheduled) + 1, dtype=np.int32)
    np.cumsum(lens, out=cu_seqlens[1:])
    total = int(cu_seqlens[-1])
    token_ids = np.fromiter(
        itertools.chain.from_iterable(s.token_ids for s in scheduled), np.int64, total
    )
    owner = np.repeat(np.arange(len(scheduled)), lens)
    positions = np.arange(total) - cu_seqlens[:-1][owner] + starts[owner]
    block_tables = _padded(scheduled)
    slots = block_tables[owner, positions // block_size].astype(np.int64) * block_size
    slots += positions % block_size
    wanted = np.fromiter((s.needs_sample for s in scheduled), bool, len(scheduled))
    return StepBatch(
        token_ids=torch.from_numpy(token_ids).to(device),
        positions=torch.from_numpy(positions).to(device),
        slot_mapping=torch.from_numpy(slots).to(device),
        cu_seqlens_q=torch.from_numpy(cu_seqlens).to(device),
        seq_lens=torch.from_numpy((starts + lens).astype(np.int32)).to(device),
        block_tables=torch.from_numpy(block_tables).to(device),
        sample_rows=torch.from_numpy(cu_seqlens[1:][wanted].astype(np.int64) - 1).to(device),
        query_lens=query_lens,
        context_lens=tuple((starts + lens).tolist()),
    )


def _padded(scheduled: Sequence[ScheduledSeq]) -> npt.NDArray[np.int32]:
    """Block tables as one rectangle; what is past a sequence's own end is never read."""
    tables = np.zeros((len(scheduled), max(len(s.block_table) for s in scheduled)), np.int32)
    for row, share in enumerate(scheduled):
        tables[row, : len(share.block_table)] = share.block_table
    return tables
