"""top-k and top-p: the likeliest tokens of each row, without sorting a whole vocabulary.

Almost always a nucleus lies within the first thousand tokens; a row where it does not is sorted
whole, and gives the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

NUCLEUS_CANDIDATES = 1024
"""Tokens looked at first for a nucleus that top-k does not bound."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of kept tokens, likeliest first; weight 0 for what was filtered out. Both [n, m]."""

    weights: torch.Tensor
    token_ids: torch.Tensor


def filtered(weights: torch.Tensor, top_k: Sequence[int], top_p: Sequence[float]) -> Candidates:
    """Keep the top_k likeliest (0 or -1: all), of these the fewest whose share reaches top_p.

    weights [n, vocab] ≥ 0, proportional to the probabilities. The likeliest token always stays.
    """
    vocab = weights.shape[1]
    limits = [min(k, vocab) if k > 0 else vocab for k in top_k]
    nucleus_only = [limit == vocab and p < 1 for limit, p in zip(limits, top_p, strict=True)]
    first = min(NUCLEUS_CANDIDATES, vocab)
    width = max(first if only else limit for limit, only in zip(limits, nucleus_only, strict=True))
    found = _keep(weights, limits, top_p, width)
    if found is None:
        found = _keep(weights, limits, top_p, vocab)
    assert found is not None, "the whole vocabulary holds every nucleus"
    return found


def _keep(
    weights: torch.Tensor, limits: Sequence[int], top_p: Sequence[float], width: int
) -> Candidates | None:
    """The filters applied to each row's `width` likeliest; None if some row needs more."""
    device = weights.device
    top, token_ids = weights.topk(width, dim=-1)
    limit = torch.tensor(limits, device=device).unsqueeze(1)
    share = torch.tensor(top_p, dtype=torch.float64, device=device).unsqueeze(1)
    rank = torch.arange(width, device=device)
    top = top * (rank < limit)
    cumulative = top.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    if max(limits) > width:
        everything = weights.sum(dim=-1, keepdim=True, dtype=torch.float64)
        total = torch.where(limit > width, everything, total)
        if bool((share * total > cumulative[:, -1:]).any()):
            return None
    before = cumulative - top
    kept = (share >= 1) | (before < share * total) | (rank == 0)
    return Candidates(top * kept, token_ids)
