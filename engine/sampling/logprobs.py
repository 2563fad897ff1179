"""Log-probabilities from logits, for the requests that ask for them.

Invariant: at most SCORED_ROWS rows of the vocabulary exist at a time, however long the prompt, and
of each only the chosen token and its top few are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.logprobs import Logprobs
from engine.models.llama import Llama
from engine.scheduler.plan import ScheduledSeq

SCORED_ROWS = 64
"""Prompt rows whose logits are computed at once: enough to read the head's weights seldom."""


class SampledRows:
    """The rows of a step whose sampled tokens' log-probabilities are asked for.

    Made before the sampler, which may overwrite logits [n, vocab]; hidden [n, hidden_size] is what
    the head read. One row per share.
    """

    def __init__(
        self, logits: torch.Tensor, hidden: torch.Tensor, shares: Sequence[ScheduledSeq]
    ) -> None:
        self._rows = [row for row, s in enumerate(shares) if s.sampling.logprobs is not None]
        if self._rows:
            self._shares = [shares[row] for row in self._rows]
            self._logits, self._hidden = logits[self._rows], hidden[self._rows]

    def score(self, model: Llama, tokens: Sequence[int]) -> dict[int, Logprobs]:
        """seq_id → of its token; tokens are those of all shares."""
        if not self._rows:
            return {}
        chosen = torch.tensor([tokens[row] for row in self._rows], device=self._logits.device)
        wanted = [share.sampling.logprobs or 0 for share in self._shares]
        scored = _score(model, self._logits, self._hidden, chosen, max(wanted))
        return {
            share.seq_id: scored.part(row, top)
            for row, (share, top) in enumerate(zip(self._shares, wanted, strict=True))
        }


def score_prompts(
    model: Llama, x: torch.Tensor, shares: Sequence[ScheduledSeq]
) -> dict[int, Logprobs]:
    """seq_id → of its prompt_targets; x [T, hidden_size] holds the rows of all shares."""
    found: dict[int, Logprobs] = {}
    first_row = 0
    for share in shares:
        if share.prompt_targets:
            found[share.seq_id] = _score_prompt(model, x, first_row, share)
        first_row += share.num_scheduled_tokens
    return found


def _score_prompt(model: Llama, x: torch.Tensor, first_row: int, share: ScheduledSeq) -> Logprobs:
    targets = torch.tensor(share.prompt_targets, device=x.device)
    rows = torch.arange(first_row, first_row + len(targets), device=x.device)
    top = share.sampling.prompt_logprobs or 0
    parts = []
    for start in range(0, len(targets), SCORED_ROWS):
        own = slice(start, start + SCORED_ROWS)
        hidden = model.hidden(x, rows[own])
        parts.append(_score(model, model.logits(hidden), hidden, targets[own], top))
    return Logprobs.joined(parts)


def _score(
    model: Llama, logits: torch.Tensor, hidden: torch.Tensor, chosen: torch.Tensor, top: int
) -> Logprobs:
    """Of chosen [n] and of each row's `top` likeliest tokens; logits [n, vocab] are overwritten.

    A token that is chosen and among the likeliest has the same figure in both places.
    """
    top = min(top, logits.shape[1])
    ids = chosen.unsqueeze(1)
    if top:
        ids = torch.cat((logits.topk(top, dim=-1).indices, ids), dim=1)
    logits = model.settle(logits, hidden, ids)
    normalizer = logits.logsumexp(dim=-1, keepdim=True)
    likeliest = logits.topk(top, dim=-1)
    return Logprobs(
        chosen=(logits.gather(1, chosen.unsqueeze(1)) - normalizer).squeeze(1).cpu().numpy(),
        top_ids=likeliest.indices.to(torch.int32).cpu().numpy(),
        top=(likeliest.values - normalizer).cpu().numpy(),
    )
