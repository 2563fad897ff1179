"""Greedy and seeded sampling of a step's rows.

Invariant: a request's token depends on its logits, its seed and its output position alone, never
on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.sampling.filters import filtered
from engine.scheduler.plan import ScheduledSeq

Draw = Callable[[torch.Tensor, Sequence[ScheduledSeq]], torch.Tensor]
"""logits [n, vocab] and their n shares → token ids [n]."""

LOWEST_TEMPERATURE = 1e-5
"""Below it float32 cannot divide by the temperature; the likeliest token is drawn there anyway."""

_SEED_SPACE = 2**64


class Sampler:
    """engine_seed seeds the requests that bring no seed of their own."""

    def __init__(self, engine_seed: int, eos_token_ids: frozenset[int]) -> None:
        self.engine_seed = engine_seed
        self._eos = sorted(eos_token_ids)

    def sample(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> list[int]:
        """logits [n, vocab], one row per share → n token ids. Logits may be overwritten."""
        self._forbid_early_end(logits, shares)
        tokens = [0] * len(shares)
        for draw in (self._likeliest, self._draw, self._draw_filtered):
            rows = [row for row, share in enumerate(shares) if self._way(share) == draw]
            if rows:
                part = logits if len(rows) == len(shares) else logits[rows]
                chosen: list[int] = draw(part, [shares[row] for row in rows]).tolist()
                for row, token in zip(rows, chosen, strict=True):
                    tokens[row] = token
        return tokens

    def _way(self, share: ScheduledSeq) -> Draw:
        sampling = share.sampling
        if sampling.greedy:
            return self._likeliest
        return self._draw if sampling.top_k <= 0 and sampling.top_p >= 1 else self._draw_filtered

    def _forbid_early_end(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> None:
        """Before min_tokens no token may end the answer."""
        for row, share in enumerate(shares):
            sampling = share.sampling
            if share.num_output_tokens + 1 <= sampling.min_tokens:
                ends = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else self._eos)]
                if ends:
                    logits[row, ends] = float("-inf")

    def _likeliest(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> torch.Tensor:
        return logits.argmax(dim=-1)

    def _draw(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> torch.Tensor:
        """From the whole vocabulary, in the order of token ids: no sorting."""
        return self._inverse_cdf(_weights(logits, shares), shares)

    def _draw_filtered(self, logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> torch.Tensor:
        """From the tokens kept by top-k and top-p, likeliest first."""
        top_k = [share.sampling.top_k for share in shares]
        top_p = [share.sampling.top_p for share in shares]
        candidates = filtered(_weights(logits, shares), top_k, top_p)
        ranks = self._inverse_cdf(candidates.weights, shares)
        return candidates.token_ids.gather(1, ranks.unsqueeze(1)).squeeze(1)

    def _inverse_cdf(self, weights: torch.Tensor, shares: Sequence[ScheduledSeq]) -> torch.Tensor:
        """Index [n] into weights [n, m] ≥ 0, drawn in proportion to them; never one of weight 0."""
        cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
        uniform = torch.tensor(
            [self._uniform(share) for share in shares], dtype=torch.float64, device=weights.device
        ).unsqueeze(1)
        total = cumulative[:, -1:]
        target = (uniform * total).minimum(total.nextafter(torch.zeros_like(total)))
        return torch.searchsorted(cumulative, target, right=True).squeeze(1)

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


def _weights(logits: torch.Tensor, shares: Sequence[ScheduledSeq]) -> torch.Tensor:
    """exp((logit - highest) / temperature), float32 [n, vocab]: probabilities but for a factor."""
    temperatures = torch.tensor(
        [max(share.sampling.temperature, LOWEST_TEMPERATURE) for share in shares],
        device=logits.device,
    ).unsqueeze(1)
    shifted = logits.float() - logits.amax(dim=-1, keepdim=True)
    return shifted.div_(temperatures).exp_()
