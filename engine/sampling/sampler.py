"""Greedy and seeded sampling of a step's rows.

Invariant: a request's token depends on its logits, its seed and its output position alone, never
on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engine.scheduler.plan import ScheduledSeq

_SEED_SPACE = 2**64


class Sampler:
    """engine_seed seeds the requests that bring no seed of their own."""

    def __init__(self, engine_seed: int, eos_token_ids: frozenset[int]) -> None:
        self.engine_seed = engine_seed
        self._eos = sorted(eos_token_ids)

    def sample(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> list[int]:
        """logits [n, vocab], one row per share → n token ids. Logits may be overwritten."""
        self._forbid_early_end(logits, shares)
        random_rows = [row for row, share in enumerate(shares) if not share.sampling.greedy]
        tokens: list[int] = logits.argmax(dim=-1).tolist()
        if random_rows:
            drawn = self._draw(logits[random_rows], [shares[row] for row in random_rows])
            for row, token in zip(random_rows, drawn, strict=True):
                tokens[row] = token
        return tokens

    def _forbid_early_end(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> None:
        """Before min_tokens no token may end the answer."""
        for row, share in enumerate(shares):
            sampling = share.sampling
            if share.num_output_tokens + 1 < sampling.min_tokens:
                ends = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else self._eos)]
                if ends:
                    logits[row, ends] = float("-inf")

    def _draw(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> list[int]:
        """Inverse-CDF sampling over the tokens kept by top-k and top-p, likeliest first."""
        temperatures = [share.sampling.temperature for share in shares]
        scaled = logits.float() / torch.tensor(temperatures, device=logits.device).unsqueeze(1)
        probabilities, order = scaled.softmax(dim=-1).sort(dim=-1, descending=True)
        keep = _kept(probabilities, shares)
        cumulative = (probabilities * keep).double().cumsum(dim=-1)
        uniform = torch.tensor(
            [self._uniform(share) for share in shares],
            dtype=torch.float64,
            device=logits.device,
        ).unsqueeze(1)
        ranks = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
        ranks = ranks.minimum(keep.sum(dim=-1, keepdim=True) - 1)
        drawn: list[int] = order.gather(1, ranks).squeeze(1).tolist()
        return drawn

    def _uniform(self, share: ScheduledSeq) -> float:
        """A number in [0, 1) from (seed, position): Philox in counter mode (Salmon et al. 2011)."""
        seed = share.sampling.seed
        key = (
            (self.engine_seed % _SEED_SPACE, share.seq_id + 1)
            if seed is None
            else (seed % _SEED_SPACE, 0)
        )
        generator = np.random.Philox(
            key=np.array(key, dtype=np.uint64), counter=[share.num_output_tokens, 0, 0, 0]
        )
        return float(np.random.Generator(generator).random())


def _kept(probabilities: torch.Tensor, shares: Sequence[ScheduledSeq]) -> torch.Tensor:
    """Mask [n, vocab] over sorted tokens: inside top-k, and inside the nucleus of top-p."""
    vocab = probabilities.shape[1]
    device = probabilities.device
    top_k = [share.sampling.top_k if share.sampling.top_k > 0 else vocab for share in shares]
    top_p = [share.sampling.top_p for share in shares]
    rank = torch.arange(vocab, device=device)
    keep = rank < torch.tensor(top_k, device=device).unsqueeze(1)
    if any(p < 1 for p in top_p):
        within = probabilities * keep
        within = within / within.sum(dim=-1, keepdim=True)
        before = within.cumsum(dim=-1) - within
        keep &= (before < torch.tensor(top_p, device=device).unsqueeze(1)) | (rank == 0)
    return keep
