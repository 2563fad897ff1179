"""Log-probabilities of tokens, as they travel from the runner to the service. No torch.

Natural logarithms of the model's own distribution: before temperature, filters and bans. Only what
was asked for is kept: the token itself and the top few, never a row of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_TOP_LOGPROBS = 20
"""The most alternatives per token that a request may ask for."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """n tokens of one sequence, one after the other, with the k likeliest at each position.

    chosen float32 [n]; top_ids int32 and top float32 [n, k], likeliest first. Which tokens were
    chosen the receiver knows.
    """

    chosen: npt.NDArray[np.float32]
    top_ids: npt.NDArray[np.int32]
    top: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.chosen)

    @classmethod
    def joined(cls, parts: Sequence[Logprobs]) -> Logprobs:
        """The tokens of all parts, one after the other; the same k in each."""
        return cls(
            np.concatenate([part.chosen for part in parts]),
            np.concatenate([part.top_ids for part in parts]),
            np.concatenate([part.top for part in parts]),
        )

    def part(self, row: int, top: int) -> Logprobs:
        """One token, with its `top` likeliest."""
        here = slice(row, row + 1)
        return Logprobs(self.chosen[here], self.top_ids[here, :top], self.top[here, :top])

    def rows(self) -> Iterator[tuple[float, list[tuple[int, float]]]]:
        """(log-probability, the top as (token id, log-probability)) of each token."""
        tops = zip(self.top_ids.tolist(), self.top.tolist(), strict=True)
        for chosen, (ids, values) in zip(self.chosen.tolist(), tops, strict=True):
            yield chosen, list(zip(ids, values, strict=True))
