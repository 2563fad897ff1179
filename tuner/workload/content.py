"""Prompts of a wanted length whose tokens no earlier measurement has sent.

Token-id prompts have their exact length. As text, a word of the list below is about 1.3 tokens
with the vocabularies of today's models; the real count is taken from the server's usage.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tuner.endpoint import Endpoint
from tuner.workload.model import Workload

LOWEST_ID, HIGHEST_ID = 1_000, 30_000
"""Inside the vocabulary of every supported model and above its control tokens."""

TOKENS_PER_WORD = 1.3
_SYLLABLES = (
    "ba", "co", "di", "fen", "gor", "hal", "in", "ka", "lo", "mar", "ne", "os", "pel", "ra", "sul",
    "ti", "ul", "ver", "wen", "yo",
)  # fmt: skip


class Content:
    """Bodies of requests. salt makes the content of this measurement its own."""

    def __init__(
        self, workload: Workload, endpoint: Endpoint, seed: int, salt: bytes | None = None
    ) -> None:
        self.workload = workload
        self.endpoint = endpoint
        self.seed = seed
        self._salt = list(os.urandom(8) if salt is None else salt)

    def body(self, index: int) -> dict[str, Any]:
        """The JSON body of the index-th request."""
        prompt_tokens, output_tokens, group = self.workload.lengths(self.seed, index)
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.endpoint.forced_lengths:
            body |= {"ignore_eos": True, "min_tokens": output_tokens}
        shared = self.workload.shared_prefix
        prompt = self._ids((0, group), shared) + self._ids((1, index), prompt_tokens - shared)
        if self.endpoint.api == "chat":
            body["messages"] = [{"role": "user", "content": _words(prompt)}]
        else:
            body["prompt"] = prompt if self.endpoint.token_ids else _words(prompt)
        return body

    def _ids(self, key: tuple[int, int], count: int) -> list[int]:
        rng = np.random.default_rng((*self._salt, *key))
        ids: list[int] = rng.integers(LOWEST_ID, HIGHEST_ID, count).tolist()
        return ids


def _words(ids: list[int]) -> str:
    count = max(1, round(len(ids) / TOKENS_PER_WORD))
    base = len(_SYLLABLES)
    return " ".join(_SYLLABLES[i % base] + _SYLLABLES[i // base % base] for i in ids[:count])
