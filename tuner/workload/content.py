"""Prompts of a wanted length whose tokens no earlier measurement has sent.

Token-id prompts have their exact length. Text gets as many words as the endpoint's probe found to
make up the wanted tokens; the real counts are taken from the server's usage.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.endpoint import HIGHEST_ID, LOWEST_ID, Endpoint
from tuner.workload.model import Workload
from tuner.workload.text import words


class Content:
    """Bodies of requests. salt makes the content of this measurement its own."""

    def __init__(
        self, workload: Workload, endpoint: Endpoint, seed: int, salt: bytes | None = None
    ) -> None:
        self.workload = workload
        self.endpoint = endpoint
        self.seed = seed
        self._salt = list(os.urandom(8) if salt is None else salt)

    @property
    def keeps_answers(self) -> bool:
        """Whether later turns hold the answers of earlier ones, so that these must be kept."""
        return False

    def turns(self, session: int) -> int:
        """How many requests the session makes, one after the other."""
        return 1

    def think_s(self, session: int, turn: int) -> float:
        """Seconds between the last answer's end and this turn's scheduled send."""
        return 0.0

    def lengths(self, session: int, turn: int = 0) -> tuple[int, int, int]:
        """(prompt tokens, output tokens, prefix group), cut to what the server's context holds."""
        prompt, output, group = self.workload.lengths(self.seed, session, turn)
        longest = self.endpoint.max_model_len
        if longest is not None:
            output = max(1, min(output, longest - 1))
            prompt = max(1, min(prompt, longest - output))
        return prompt, output, group

    def body(self, session: int, turn: int = 0, answers: Sequence[str] = ()) -> dict[str, Any]:
        """The JSON body of one turn; answers: the texts of the session's earlier turns."""
        prompt_tokens, output_tokens, group = self.lengths(session, turn)
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.endpoint.forced_lengths:
            body |= {"ignore_eos": True, "min_tokens": output_tokens}
        shared = self._ids((0, group), min(self.workload.shared_prefix, prompt_tokens - 1))
        own = self._ids((1, session), prompt_tokens - len(shared))
        if self.endpoint.api == "chat":
            body["messages"] = [{"role": "user", "content": self._text(shared, own)}]
        else:
            body["prompt"] = shared + own if self.endpoint.token_ids else self._text(shared, own)
        return body

    def _ids(self, key: tuple[int, int], count: int) -> list[int]:
        rng = np.random.default_rng((*self._salt, *key))
        ids: list[int] = rng.integers(LOWEST_ID, HIGHEST_ID, count).tolist()
        return ids

    def _text(self, shared: list[int], own: list[int]) -> str:
        """Shared words first; the chat template's own tokens are taken off the rest."""
        per_word = self.endpoint.tokens_per_word
        head = words(shared, round(len(shared) / per_word))
        own_tokens = len(own) - self.endpoint.template_tokens
        tail = words(own, max(1, round(own_tokens / per_word)))
        return f"{head} {tail}" if head else tail
