"""Log-probabilities in the two forms of the API: of /v1/completions, and of chat.

A token is named by its text; one that is not whole UTF-8 by its bytes (bytes:\\xe2\\x80), a special
one as it is written. Invariant: every counted token has one entry, in order, the one that ends the
answer included.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.logprobs import Logprobs
from engine.tokenizer import TokenBytes

Top = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One token; logprob and top are None for a prompt's first, which nothing predicts.

    offset: characters of the choice's text before it.
    """

    token_id: int
    logprob: float | None
    top: Top | None
    offset: int


@dataclass(slots=True)
class TokenLog:
    """The entries of one choice that have not been written yet.

    position: characters of text that the tokens so far have given.
    """

    token_bytes: TokenBytes
    position: int = 0
    _entries: list[Entry] = field(default_factory=list)

    def add_prompt(self, token_ids: Sequence[int], text: str, parts: Sequence[Logprobs]) -> None:
        """An echoed prompt; parts tell of all its tokens but the first."""
        rows = [row for part in parts for row in part.rows()]
        told: list[tuple[float | None, Top | None]] = [(None, None), *rows]
        offsets = prompt_offsets(self.token_bytes, token_ids, text)
        for token_id, offset, (logprob, top) in zip(token_ids, offsets, told, strict=True):
            self._entries.append(Entry(token_id, logprob, top, offset))
        self.position = len(text)

    def add(self, token_id: int, told: Logprobs | None) -> None:
        """A sampled token, before its text is known."""
        assert told is not None, "the engine tells what the request asks for"
        ((logprob, top),) = told.rows()
        self._entries.append(Entry(token_id, logprob, top, self.position))

    def take(self) -> list[Entry]:
        entries, self._entries = self._entries, []
        return entries

    def completion_form(self) -> dict[str, Any]:
        """What is not written yet, as /v1/completions tells it: four lists of equal length."""
        entries = self.take()
        return {
            "tokens": [self._name(entry.token_id) for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [self._top_by_name(entry) for entry in entries],
            "text_offset": [entry.offset for entry in entries],
        }

    def chat_form(self) -> dict[str, Any]:
        """What is not written yet, as /v1/chat/completions tells it."""
        content = [
            {
                **self._described(entry.token_id, entry.logprob),
                "top_logprobs": [self._described(*one) for one in entry.top or ()],
            }
            for entry in self.take()
        ]
        return {"content": content, "refusal": None}

    def _top_by_name(self, entry: Entry) -> dict[str, float] | None:
        """The likeliest, and the token itself where it is none of them."""
        if entry.top is None or entry.logprob is None:
            return None
        named: dict[str, float] = {}
        for token_id, logprob in [*entry.top, (entry.token_id, entry.logprob)]:
            named.setdefault(self._name(token_id), logprob)
        return named

    def _described(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        raw = self.token_bytes.shown(token_id)
        return {"token": name_of(raw), "logprob": logprob, "bytes": list(raw)}

    def _name(self, token_id: int) -> str:
        return name_of(self.token_bytes.shown(token_id))


def name_of(raw: bytes) -> str:
    """The text of a token, or its bytes where they are no text by themselves."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def prompt_text(token_bytes: TokenBytes, token_ids: Sequence[int]) -> str:
    """A prompt of token ids as text, special tokens as they are written."""
    return b"".join(map(token_bytes.shown, token_ids)).decode(errors="replace")


def prompt_offsets(token_bytes: TokenBytes, token_ids: Sequence[int], text: str) -> list[int]:
    """Where each prompt token begins in text. What the tokens say before it (a BOS that the
    tokenizer puts in front) takes no room."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    ends = [0]
    for token_id in token_ids:
        ends.append(ends[-1] + len(decoder.decode(token_bytes.shown(token_id))))
    added = ends[-1] + len(decoder.decode(b"", final=True)) - len(text)
    return [min(max(0, end - added), len(text)) for end in ends[:-1]]
