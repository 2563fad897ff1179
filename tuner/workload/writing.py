"""How numbers, durations, names and files are written in a workload's text, so that it reads back.

A file carries its hash once it has been read: `trace.csv#sha256=0123456789abcdef`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tuner.errors import UserError
from tuner.printable import shortened

HASH_DIGITS = 16
_HASHED = re.compile(r"(.*)#sha256=([0-9a-f]{8,64})$", re.DOTALL)
_BARE = re.compile(r"[^\s,()\"=][^,()\"]*(?<!\s)$")


def plain(number: float) -> str:
    """The shortest digits that read back as the same number, never with an exponent."""
    return np.format_float_positional(number, trim="-")


def quoted(name: str) -> str:
    """A name as a value of the text; in double quotes where a comma or a blank would end it."""
    return name if _BARE.match(name) else f'"{name}"'


def unquoted(value: str) -> str:
    """The inverse of quoted."""
    value = value.strip()
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def split_outside(text: str, separator: str = ",") -> list[str]:
    """The parts between separators that stand in no parentheses and no double quotes."""
    parts, depth, inside, start = [], 0, False, 0
    for place, char in enumerate(text):
        if char == '"':
            inside = not inside
        elif not inside and char in "()":
            depth = max(0, depth + (1 if char == "(" else -1))
        elif char == separator and not inside and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


@dataclass(frozen=True, slots=True)
class FileName:
    """A path and what its content is known to hash to; "" before it was read."""

    path: str
    sha256: str = ""

    def checked(self, sha256: str) -> FileName:
        """With the hash of what was read. Raises UserError when another was expected."""
        if self.sha256 and not sha256.startswith(self.sha256):
            raise UserError(
                f"{self.path}: its content has changed since this workload was written (sha256 "
                f"{sha256[:HASH_DIGITS]}, not {self.sha256}); take the hash away to use it as it is"
            )
        return replace(self, sha256=sha256[:HASH_DIGITS])

    def __str__(self) -> str:
        return quoted(self.path + (f"#sha256={self.sha256}" if self.sha256 else ""))


def parse_file_name(text: str, what: str) -> FileName:
    """`PATH` or `PATH#sha256=HEX`, with or without double quotes. Raises UserError."""
    name = unquoted(text)
    found = _HASHED.match(name)
    path, sha256 = (found.group(1), found.group(2)) if found else (name, "")
    if not path or '"' in path:
        raise UserError(
            f"--workload: {what}={shortened(text)} is no path; a path may hold no double quote"
        )
    return FileName(path, sha256)
