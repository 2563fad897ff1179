"""Words made of syllables: text of a controllable length that no corpus and no cache holds."""

from __future__ import annotations

from collections.abc import Sequence

_SYLLABLES = (
    "ba", "co", "di", "fen", "gor", "hal", "in", "ka", "lo", "mar", "ne", "os", "pel", "ra", "sul",
    "ti", "ul", "ver", "wen", "yo",
)  # fmt: skip


def words(numbers: Sequence[int], count: int) -> str:
    """count words, one for each of the first numbers; the same numbers give the same words."""
    base = len(_SYLLABLES)
    return " ".join(_SYLLABLES[i % base] + _SYLLABLES[i // base % base] for i in numbers[:count])
