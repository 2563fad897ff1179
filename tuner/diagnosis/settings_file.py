"""Settings of a server out of a file: the words it is started with, as a unit file or a script
holds them, or TOML (`max_num_seqs = 256`).

Invariant: of a command line only the knobs that the tree knows are taken, and the rest is left
alone; a name in TOML is meant, so that an unknown one is a fault.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path

from engine.knobs import KNOBS
from tuner.diagnosis.settings import checked
from tuner.documents import NotADocumentError, parsed, read_text
from tuner.errors import UserError
from tuner.targets.base import Setting, setting_text
from tuner.targets.flags import AUTO, DIALECTS, split_words


def file_settings(path: Path) -> dict[str, str]:
    """By the tree's names. Raises UserError, which names the file."""
    text = read_text(path)
    flags = any(word.startswith("--") for word in text.split())
    try:
        told = _of_words(text) if flags else checked(_texts(_of_toml(text)))
    except UserError as fault:
        why = str(fault).removeprefix("--set ").removeprefix("--serve-args: ")
        raise UserError(f"{path}: {why}") from None
    if not told:
        example = "--max-num-seqs 256, or TOML: max_num_seqs = 256"
        raise UserError(f"{path} holds no setting that the diagnosis knows, such as {example}")
    return told


def _of_toml(text: str) -> Mapping[str, object]:
    try:
        found: Mapping[str, object] = parsed(text, tomllib.loads)
    except NotADocumentError as fault:
        raise UserError(f"neither flags (--max-num-seqs 256) nor TOML: {fault}") from None
    return found


def _texts(found: Mapping[str, object]) -> dict[str, str]:
    """Raises UserError for a table or a list: settings stand at the top."""
    texts = {}
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            raise UserError(f"{name} is no single value: write settings as max_num_seqs = 256")
        texts[name] = setting_text(value)
    return texts


def _of_words(text: str) -> dict[str, str]:
    """Lines that go on (`\\` at their end) and comments are as in a shell."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as fault:
        raise UserError(f"not the words of a command line: {fault}") from None
    found: dict[str, Setting] = {}
    for dialect in DIALECTS:
        told, _ = split_words(words, tuple(KNOBS), dialect)
        found |= told
    return checked({n: setting_text(value) for n, value in found.items() if _told(value)})


def _told(value: Setting) -> bool:
    """Not a word that leaves the setting to the server, or switches it off (-1)."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value != AUTO and not (number and float(value) <= 0)
