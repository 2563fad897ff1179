"""Task files: one JSON object per line, a multiple-choice or an exact-match item.

Owns the format (docs/quality.md) and how a question becomes the text that the model reads. Every
fault is told with its line; an item is never left out silently.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuner.documents import NotADocumentError, parsed, read_text
from tuner.errors import UserError
from tuner.regular import check_regular

DEFAULT_MAX_TOKENS = 32
DEFAULT_STOP = ("\n",)

_MULTIPLE_CHOICE = {"question", "prompt", "choices", "answer"}
_EXACT_MATCH = {"question", "prompt", "target", "stop", "max_tokens"}
_LABELS = {"id", "subject", "source", "comment"}
"""Say where an item comes from; read by nobody here."""


@dataclass(frozen=True, slots=True)
class MultipleChoice:
    """The likeliest of choices after context is the model's answer; answer is the right index.

    choices are the texts as appended to context, with the space between; names without it.
    """

    line: int
    context: str
    choices: tuple[str, ...]
    answer: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(choice.strip() for choice in self.choices)


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """What the model writes after context, up to a stop string, must equal one of targets."""

    line: int
    context: str
    targets: tuple[str, ...]
    stop: tuple[str, ...]
    max_tokens: int


Item = MultipleChoice | ExactMatch


@dataclass(frozen=True, slots=True)
class Task:
    """name is the file's."""

    name: str
    items: tuple[Item, ...]

    def first(self, limit: int | None) -> Task:
        """The same with at most `limit` items."""
        return self if limit is None else Task(self.name, self.items[:limit])

    @property
    def num_multiple_choice(self) -> int:
        return sum(isinstance(item, MultipleChoice) for item in self.items)

    @property
    def chance(self) -> float | None:
        """What guessing would get right of the multiple-choice items; None where there is none."""
        sizes = [len(item.choices) for item in self.items if isinstance(item, MultipleChoice)]
        return sum(1 / size for size in sizes) / len(sizes) if sizes else None


PIN = "#sha256="
"""Between a file's path and the first digits of its digest, as a stored workload has it."""


def pinned(path: str) -> str:
    """The absolute path with its content's digest: what a study is begun with. UserError."""
    found = Path(path).resolve()
    return f"{found}{PIN}{_digest(found)}"


def read_pinned(text: str) -> Task:
    """The task of pinned(). UserError where the file holds other questions by now."""
    path, _, digest = text.rpartition(PIN)
    if _digest(Path(path)) != digest:
        raise UserError(
            f"{path} holds other questions than those that the study was begun with: give another "
            "--study"
        )
    return read_task(Path(path))


def _digest(path: Path) -> str:
    try:
        check_regular(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def read_task(path: Path) -> Task:
    """All items of a file. Raises UserError naming file and line."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    items = tuple(_item(f"{path}, line {n}", n, line) for n, line in lines if line.strip())
    if not items:
        raise UserError(f"{path} holds no items: one JSON object per line, see docs/quality.md")
    return Task(path.name, items)


def _item(where: str, number: int, line: str) -> Item:
    try:
        fields = parsed(line, partial(json.loads, object_pairs_hook=_once))
    except NotADocumentError as fault:
        raise UserError(f"{where}: not valid JSON ({fault})") from None
    if not isinstance(fields, dict):
        raise UserError(f"{where}: an item is a JSON object, got {type(fields).__name__}")
    known = _MULTIPLE_CHOICE if "choices" in fields else _EXACT_MATCH
    if "choices" not in fields and "target" not in fields:
        raise UserError(f"{where}: an item has either choices and answer, or a target")
    unknown = sorted(set(fields) - known - _LABELS)
    if unknown:
        raise UserError(
            f"{where}: unknown field {unknown[0]!r}; known here: {', '.join(sorted(known))}"
        )
    context = _context(where, fields)
    if "choices" in fields:
        return _multiple_choice(where, number, context, fields)
    return ExactMatch(
        number,
        context,
        _texts(where, "target", fields["target"]),
        _texts(where, "stop", fields.get("stop", list(DEFAULT_STOP))),
        _max_tokens(where, fields.get("max_tokens", DEFAULT_MAX_TOKENS)),
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose every key stands there once."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise NotADocumentError(f"it gives {key!r:.60} twice")
        found[key] = value
    return found


def _context(where: str, fields: dict[str, Any]) -> str:
    """A prompt is taken as it stands; a question is put into the usual form."""
    given = [name for name in ("question", "prompt") if name in fields]
    if len(given) != 1:
        raise UserError(f"{where}: give either question or prompt")
    text = fields[given[0]]
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}: {given[0]} must be a text, and not empty")
    return f"Question: {text.strip()}\nAnswer:" if given[0] == "question" else text


def _multiple_choice(
    where: str, number: int, context: str, fields: dict[str, Any]
) -> MultipleChoice:
    choices = fields["choices"]
    texts = _texts(where, "choices", choices) if isinstance(choices, list) else ()
    if len(texts) < 2 or len({text.strip() for text in texts}) < len(texts):
        raise UserError(f"{where}: choices must be a list of two or more different texts")
    if any(not text.strip() for text in texts):
        raise UserError(f"{where}: a choice is empty")
    answer = fields.get("answer")
    if isinstance(answer, str) and answer in texts:
        answer = texts.index(answer)
    if type(answer) is not int or not 0 <= answer < len(texts):
        raise UserError(
            f"{where}: answer must be a number from 0 to {len(texts) - 1} or one of the choices, "
            f"got {fields.get('answer')!r}"
        )
    # White space goes to the choice: at a context's end it would be a token of its own.
    bare = context.rstrip()
    gap = context[len(bare) :]
    spaced = tuple(gap + text if gap or text[0].isspace() else f" {text}" for text in texts)
    return MultipleChoice(number, bare, spaced, answer)


def _texts(where: str, name: str, value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise UserError(f"{where}: {name} must be a text or a list of texts, and not empty")
    if name == "stop" and not all(texts):
        raise UserError(f"{where}: a stop string is empty")
    return tuple(texts)


def _max_tokens(where: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 4096:
        raise UserError(f"{where}: max_tokens must be a number from 1 to 4096, got {value!r}")
    return value
