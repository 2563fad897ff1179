"""What a server said, fit for a line of a terminal or a report.

Invariant: the result is one line, bounded, without control characters: no server writes to the
terminal of whoever measures it.
"""

from __future__ import annotations

MAX_CHARS = 300


def one_line(text: str, most: int = MAX_CHARS) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]
