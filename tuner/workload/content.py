"""Bodies of requests: prompts whose tokens no earlier measurement has sent.

Token-id prompts have their exact length. Text gets as many words as the endpoint's probe found to
make up the wanted tokens; the real counts are taken from the server's usage. A conversation goes
as chat messages or as text, never as token ids, because the answers it repeats come back as text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.endpoint import HIGHEST_ID, LOWEST_ID, Endpoint
from tuner.workload.dialog import Message, as_text, text_of
from tuner.workload.model import Workload
from tuner.workload.text import words

BLOCK_TOKENS = 512
"""What one id of a Mooncake trace's hash_ids stands for."""

NONCE_WORDS = 4
"""At the head of a file's own prompts: no cache of an earlier measurement knows them."""

_PREFIX, _OWN, _BLOCK, _NONCE, _LATER = range(5)


def same_salt(seed: int) -> bytes:
    """The salt that makes content repeatable: the same for every measurement of a seed."""
    return b"slotune" + seed.to_bytes(8, "big")


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
        return self.workload.conversational

    def turns(self, session: int) -> int:
        """How many requests the session makes, one after the other: those that its context holds
        when every answer is as long as asked for."""
        turns = self.workload.turn_count(self.seed, session)
        longest = self.endpoint.max_model_len
        if longest is None or turns == 1:
            return turns
        for turn in range(1, turns):
            prompt, output, _ = self.workload.lengths(self.seed, session, turn)
            if prompt + output + turn * self.endpoint.template_tokens > longest:
                return turn
        return turns

    def think_s(self, session: int, turn: int) -> float:
        """Seconds between the last answer's end and this turn's scheduled send."""
        return self.workload.think_s(self.seed, session, turn)

    def lengths(self, session: int, turn: int = 0) -> tuple[int, int, int]:
        """(prompt tokens, output tokens, prefix group), cut to what the server's context holds."""
        prompt, output, group = self.workload.lengths(self.seed, session, turn)
        longest = self.endpoint.max_model_len
        if longest is not None:
            output = max(1, min(output, longest - 1))
            prompt = min(prompt, longest - output)
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
        chat, source = self.endpoint.api == "chat", self.workload.source
        if source is not None and source.rows.has_text:
            messages = self._recorded(session, turn, answers)
        elif self.workload.conversational:
            messages = self._conversation(session, turn, answers)
        else:
            shared, own = self._parts(session, prompt_tokens, group)
            if not chat and self.endpoint.token_ids:
                return body | {"prompt": shared + own}
            messages = [_said_by("user", self._text(shared, own))]
        if chat:
            return body | {"messages": messages}
        return body | {"prompt": as_text(messages, conversation=self.workload.conversational)}

    def _parts(self, session: int, prompt_tokens: int, group: int) -> tuple[list[int], list[int]]:
        """Numbers of the shared head and of the rest, together prompt_tokens."""
        workload = self.workload
        if workload.source is not None and workload.source.rows.blocks is not None:
            row, again = workload.source.row(self.seed, session)
            blocks = workload.source.rows.blocks.of(row)[: prompt_tokens // BLOCK_TOKENS]
            shared = [n for block in blocks for n in self._ids(BLOCK_TOKENS, _BLOCK, block, again)]
        else:
            head = min(workload.shared_prefix, prompt_tokens - 1)
            shared = self._ids(head, _PREFIX, group)
        return shared, self._ids(prompt_tokens - len(shared), _OWN, session)

    def _conversation(self, session: int, turn: int, answers: Sequence[str]) -> list[Message]:
        """What was asked and answered so far, and the question of this turn."""
        messages: list[Message] = []
        for asked in range(turn + 1):
            tokens, _, group = self.workload.added(self.seed, session, asked)
            if asked == 0:
                text = self._text(*self._parts(session, self.lengths(session)[0], group))
            else:
                text = self._text([], self._ids(tokens, _LATER, session, asked))
            messages.append(_said_by("user", text))
            if asked < min(turn, len(answers)):
                messages.append(_said_by("assistant", answers[asked]))
        return messages

    def _recorded(self, session: int, turn: int, answers: Sequence[str]) -> list[Message]:
        """A file's messages, made this measurement's own by some words at their head: the same for
        all prompts, so that what they share stays shared."""
        source = self.workload.source
        assert source is not None
        row, again = source.row(self.seed, session)
        dialog = source.dialog(row)
        if self.workload.conversational:
            messages = dialog.up_to(turn, answers)
        else:
            messages = dialog.request()
        nonce = words(self._ids(NONCE_WORDS, _NONCE, again), NONCE_WORDS)
        head = messages[0]
        if isinstance(head["content"], list):
            content: Any = [{"type": "text", "text": nonce}, *head["content"]]
        else:
            content = f"{nonce}\n{text_of(head['content'])}"
        return [{**head, "content": content}, *messages[1:]]

    def _ids(self, count: int, *key: int) -> list[int]:
        rng = np.random.default_rng((*self._salt, *key))
        ids: list[int] = rng.integers(LOWEST_ID, HIGHEST_ID, max(0, count)).tolist()
        return ids

    def _text(self, shared: list[int], own: list[int]) -> str:
        """Shared words first; the chat template's own tokens are taken off the rest."""
        per_word = self.endpoint.tokens_per_word
        head = words(shared, round(len(shared) / per_word))
        own_tokens = len(own) - self.endpoint.template_tokens
        tail = words(own, max(1, round(own_tokens / per_word)))
        return f"{head} {tail}" if head else tail


def _said_by(role: str, text: str) -> Message:
    return {"role": role, "content": text}
