"""The fast path for tokens: events of one answer mostly differ in nothing but their text.

A Shape is learned from an event that was parsed in full. Invariant: where text_of() gives a text,
the full parser would have found exactly this text in exactly the same place and nothing else; the
tests compare both on every kind of event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

MARK = "slotune\u00b7mark"
_MARK_BYTES = MARK.encode()
PLAIN = bytes(code for code in range(0x20, 0x100) if code not in b'"\\\x7f')
"""Bytes that stand for themselves within a JSON string (those from 0x80 on if they are UTF-8)."""

MOST_PLACES = 4
"""A text may stand elsewhere in its event too (in logprobs); further places are not tried."""


@dataclass(frozen=True, slots=True)
class Shape:
    """head + a text + tail is an event; answer: the text is answer, not reasoning."""

    head: bytes
    tail: bytes
    answer: bool

    def text_of(self, event: bytes) -> bytes | None:
        """The text (not empty) where the event has this shape, None where it must be parsed."""
        head, tail = self.head, self.tail
        if not (event.startswith(head) and event.endswith(tail)):
            return None
        text = event[len(head) : -len(tail)]
        if not text or len(event) <= len(head) + len(tail) or text.translate(None, PLAIN):
            return None
        return text if text.isascii() or _is_utf8(text) else None


def learn(event: bytes, message: dict[str, Any], path: tuple[str, ...]) -> Shape | None:
    """The shape of an event whose only content is the text at message["choices"][0][path…].

    Proof by substitution: the event with a mark in the text's place must parse to the same message
    with the mark at that path. The mark holds no quote, so it fills exactly one string.
    """
    slot = message["choices"][0]
    for key in path[:-1]:
        slot = slot[key]
    text = slot[path[-1]]
    quoted = b'"' + text.encode() + b'"'
    if not event.startswith(b"data:") or b"\n" in event or _MARK_BYTES in event:
        return None
    at = event.find(quoted)
    for _ in range(MOST_PLACES):
        if at < 0:
            break
        head, tail = event[: at + 1], event[at + len(quoted) - 1 :]
        if _fills(head + _MARK_BYTES + tail, message, slot, path[-1], text):
            return Shape(head, tail, answer=path[-1] in ("text", "content"))
        at = event.find(quoted, at + 1)
    return None


def _fills(
    event: bytes, message: dict[str, Any], slot: dict[str, Any], key: str, text: str
) -> bool:
    try:
        marked = orjson.loads(event[5:].strip())
    except orjson.JSONDecodeError:
        return False
    slot[key] = MARK
    same = bool(marked == message)
    slot[key] = text
    return same


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
