"""What a server said or a user gave, fit for a line of a terminal or a report.

Invariant: the result has no control characters: no server and no file writes to the terminal of
whoever measures it.
"""

from __future__ import annotations

import re

MAX_CHARS = 300
MAX_VALUE_CHARS = 60
"""Of what a user gave, inside a sentence about it."""

_ENDLESS_WORD = re.compile(r"\S{300,}")


def shown(text: str) -> str:
    """Its lines as they are, without control characters; half of a character, which a file's name
    may hold, is spelt out."""
    return "".join(c if c.isprintable() or c == "\n" else _replaced(c) for c in text)


def _replaced(character: str) -> str:
    if character.encode("utf-8", "ignore"):
        return "\N{REPLACEMENT CHARACTER}"
    return character.encode("ascii", "backslashreplace").decode()


def one_line(text: str, most: int = MAX_CHARS) -> str:
    """One bounded line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]


def readable(text: str) -> str:
    """Its lines, without control characters; of a word that no line holds, both ends."""
    return _ENDLESS_WORD.sub(lambda word: f"{word[0][:200]}…{word[0][-60:]}", shown(text))


def shortened(text: str, most: int = MAX_VALUE_CHARS) -> str:
    """At most so many characters, an ellipsis for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
