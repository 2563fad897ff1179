"""Token ids to text, one token at a time, in constant time per token.

Every token stands for bytes; an incremental UTF-8 decoder turns them into text. Invariant: the
pieces joined equal the decoding of the whole, and no half character is ever shown.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection
from typing import Literal

Alphabet = Literal["byte_level", "byte_fallback"]


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: character → byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(0x100 + offset): byte for offset, byte in enumerate(others)})
    return alphabet


_BYTE_OF = byte_level_alphabet()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes([_BYTE_OF[character] for character in piece])
    except KeyError:  # an added token is written as plain text
        return piece.encode()


def _byte_fallback(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()


_TO_BYTES: dict[Alphabet, Callable[[str], bytes]] = {
    "byte_level": _byte_level,
    "byte_fallback": _byte_fallback,
}


class TokenBytes:
    """token id → the bytes it adds to a text; special tokens and unknown ids add none."""

    def __init__(
        self,
        piece_of: Callable[[int], str | None],
        special_ids: Collection[int],
        alphabet: Alphabet,
    ) -> None:
        self._piece_of = piece_of
        self._to_bytes = _TO_BYTES[alphabet]
        self._special_ids = frozenset(special_ids)
        self._known: dict[int, bytes] = dict.fromkeys(special_ids, b"")

    def __getitem__(self, token_id: int) -> bytes:
        known = self._known.get(token_id)
        if known is None:
            piece = self._piece_of(token_id)
            known = b"" if piece is None else self._to_bytes(piece)
            self._known[token_id] = known
        return known

    def shown(self, token_id: int) -> bytes:
        """The same, but a special token as it is written."""
        if token_id in self._special_ids:
            return (self._piece_of(token_id) or "").encode()
        return self[token_id]


class IncrementalDetokenizer:
    """The text of one output, token by token."""

    __slots__ = ("_decoder", "_token_bytes")

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def append(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is still incomplete."""
        return self._decoder.decode(self._token_bytes[token_id])

    def flush(self) -> str:
        """U+FFFD for a character that the output ended in the middle of, else ""."""
        return self._decoder.decode(b"", final=True)
