"""What a server said, fit for a line of a terminal or a report.

Invariant: the result has no control characters: no server and no file writes to the terminal of
whoever measures it.
"""

from __future__ import annotations

MAX_CHARS = 300


def shown(text: str) -> str:
    """Its lines as they are, without control characters."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str, most: int = MAX_CHARS) -> str:
    """One bounded line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]
