"""Files that users give: their text, and what JSON, TOML or YAML makes of it.

Invariant: whatever such a file holds, what comes of it is values that can be printed and sent, or
one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner.errors import UserError
from tuner.regular import check_regular

MAX_BYTES = 64 << 20
MAX_DIGITS = 4300
"""Of a whole number: longer ones Python does not write as text."""

_TOO_LARGE = 10**MAX_DIGITS


class NotADocumentError(ValueError):
    """Why a text is not what it should be; the message has one line."""


def read_document(path: Path, parse: Callable[[str], Any], form: str) -> Any:
    """What parse makes of the file; form is what it should be ("TOML"). Raises UserError."""
    try:
        return parsed(read_text(path), parse)
    except NotADocumentError as fault:
        raise UserError(f"{path} is not valid {form}: {fault}") from None


def read_text(path: Path) -> str:
    """Raises UserError for what is no regular file of UTF-8 text, or larger than MAX_BYTES."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise UserError(f"{path} is larger than {MAX_BYTES >> 20} MiB: split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}): {error.reason}") from error


def parsed(text: str, parse: Callable[[str], Any]) -> Any:
    """What parse makes of a text. Raises NotADocumentError."""
    try:
        found = parse(text)
    except RecursionError:
        raise NotADocumentError("it is nested too deeply") from None
    except Exception as fault:  # YAML lets through whatever the types of its values raise
        raise NotADocumentError(_why(fault)) from None
    _check_values(found)
    return found


def _why(fault: Exception) -> str:
    said = " ".join(str(fault).split())
    return _TOO_LONG if said.startswith("Exceeds the limit") else said


_TOO_LONG = f"it holds a whole number of more than {MAX_DIGITS} digits"


def _check_values(found: Any) -> None:
    """Of all that lies within; YAML may put one list in many places, or into itself."""
    left, seen = [found], set()
    while left:
        value = left.pop()
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, int) and abs(value) >= _TOO_LARGE:
            raise NotADocumentError(_TOO_LONG)
        elif isinstance(value, (dict, list, tuple, set)) and id(value) not in seen:
            seen.add(id(value))
            left += [*value, *value.values()] if isinstance(value, dict) else value


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])[1:-1]
        raise NotADocumentError(f"it holds half a character, {half}, which is no text") from None
