"""Which column of a file means what: names of the field's common forms, blind to case and spelling.

Invariant: a column is found by its name alone, never by its place; the user's own name for it wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tuner.errors import UserError

Unit = Literal["", "s", "ms", "us", "ns"]
Path = tuple[str, ...]
"""A key, or the keys on the way to a nested one (`usage`, `prompt_tokens`)."""

ALIASES: dict[str, tuple[str, ...]] = {
    "time": (
        "timestamp", "time", "ts", "arrivaltime", "arrivaltimestamp", "arrivedat", "arrival",
        "starttime", "startedat", "requesttime", "createdat", "created", "date", "datetime",
    ),
    "prompt_tokens": (
        "prompttokens", "promptlength", "promptlen", "inputlength", "inputlen", "inputtokens",
        "contexttokens", "requesttokens", "numprompttokens", "numprefilltokens", "isl",
    ),
    "output_tokens": (
        "outputtokens", "outputlength", "outputlen", "generatedtokens", "responsetokens",
        "completiontokens", "completionlength", "generationtokens", "numdecodetokens", "osl",
        "maxtokens", "maxcompletiontokens", "maxnewtokens",
    ),
    "blocks": ("hashids", "blockhashes"),
    "text": ("prompt", "text", "textinput", "input", "question", "query", "instruction"),
    "messages": ("messages", "conversations", "conversation"),
    "system": ("system", "systemprompt"),
    "answer": ("output", "answer", "response", "completion", "outputtext"),
}  # fmt: skip

_UNIT_SUFFIX = re.compile(r"[_\s](ms|us|ns|s|sec|seconds|millis|milliseconds)$", re.IGNORECASE)
_NUMBER = re.compile(r"\s*-?\d+(\.\d*)?\s*$", re.ASCII)
_UNITS: dict[str, Unit] = {
    "s": "s", "sec": "s", "seconds": "s", "ms": "ms", "millis": "ms", "milliseconds": "ms",
    "us": "us", "ns": "ns",
}  # fmt: skip
PER_SECOND: dict[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
LATEST_TIME = 1e20
"""No numeric time is further from 0, in any unit: nanoseconds since 1970 are below 2e18."""

_EPOCHS: tuple[tuple[float, Unit], ...] = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))
"""From these sizes on a number counts since 1970: nothing runs for 3,000 years."""


@dataclass(frozen=True, slots=True)
class Named:
    """What the user says about the columns; "" where the names tell."""

    prompt: str = ""
    output: str = ""
    time: str = ""
    unit: Unit = ""


AS_NAMED = Named()


@dataclass(frozen=True, slots=True)
class Roles:
    """The way to each column, None where the file has none. unit "": by the size of the numbers."""

    time: Path | None = None
    prompt_tokens: Path | None = None
    output_tokens: Path | None = None
    blocks: Path | None = None
    text: Path | None = None
    messages: Path | None = None
    system: Path | None = None
    answer: Path | None = None
    unit: Unit = ""

    @property
    def has_text(self) -> bool:
        return self.text is not None or self.messages is not None


NO_ROLES = Roles()


def roles_of(first: Mapping[str, Any], named: Named, place: str) -> Roles:
    """The columns of a file by its first row. Raises UserError for a name it does not have."""
    found: dict[str, Path] = {}
    for path, _ in _leaves(first):
        for role, aliases in ALIASES.items():
            if _plain(path[-1]) in aliases:
                found.setdefault(role, path)
    roles = replace(NO_ROLES, **found)  # type: ignore[arg-type]
    roles = _with_named(roles, named, first, place)
    if roles.text and roles.prompt_tokens is None and _is_count(value_at(first, roles.text)):
        roles = replace(roles, prompt_tokens=roles.text, text=None)
    if roles.answer and roles.output_tokens is None and _is_count(value_at(first, roles.answer)):
        roles = replace(roles, output_tokens=roles.answer, answer=None)
    if roles.text and isinstance(value_at(first, roles.text), list) and roles.messages is None:
        roles = replace(roles, messages=roles.text, text=None)
    return replace(roles, unit=named.unit or _unit(roles))


def value_at(row: Any, path: Path) -> Any:
    """The value at the end of the way; None where it is broken off."""
    if len(path) == 1 and isinstance(row, dict):
        return row.get(path[0])
    for key in path:
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


def form_of(container: str, roles: Roles) -> str:
    """`CSV`, or `CSV (BurstGPT form)` where the columns are those of a known form."""
    names = {_plain(way[-1]) for way in (roles.prompt_tokens, roles.output_tokens) if way}
    known = ""
    if roles.blocks is not None:
        known = "Mooncake"
    elif {"contexttokens", "generatedtokens"} <= names:
        known = "Azure LLM inference"
    elif {"requesttokens", "responsetokens"} <= names:
        known = "BurstGPT"
    elif roles.messages is not None and roles.messages[-1] == "conversations":
        known = "ShareGPT"
    return f"{container} ({known} form)" if known else container


def seconds_per_unit(unit: Unit, largest: float) -> float:
    """What one step of a numeric time column is, in seconds."""
    if not unit:
        unit = next((name for size, name in _EPOCHS if largest >= size), "s")
    return 1 / PER_SECOND[unit]


def _with_named(roles: Roles, named: Named, first: Mapping[str, Any], place: str) -> Roles:
    leaves = dict(_leaves(first))

    def way(name: str, key: str) -> Path:
        for path in leaves:
            if name in (path[-1], ".".join(path)):
                return path
        columns = ", ".join(".".join(path) for path in leaves)
        raise UserError(f"{place}: there is no column {name!r} for {key}=; it has: {columns}")

    if named.time:
        roles = replace(roles, time=way(named.time, "time_column"))
    if named.prompt:
        path = way(named.prompt, "prompt_column")
        counts = _is_count(leaves[path])
        roles = replace(
            roles,
            prompt_tokens=path if counts else None,
            text=None if counts else path,
            messages=None,
            blocks=roles.blocks if counts else None,
        )
    if named.output:
        path = way(named.output, "output_column")
        counts = _is_count(leaves[path])
        roles = replace(
            roles,
            output_tokens=path if counts else None,
            answer=None if counts else path,
        )
    return roles


def _leaves(row: Mapping[str, Any]) -> list[tuple[Path, Any]]:
    """Columns in their order, then those one level down (`usage.prompt_tokens`)."""
    flat: list[tuple[Path, Any]] = [((str(key),), value) for key, value in row.items()]
    nested: list[tuple[Path, Any]] = [
        ((str(key), str(inner)), value)
        for key, group in row.items()
        if isinstance(group, Mapping)
        for inner, value in group.items()
    ]
    return [*flat, *nested]


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-.]", "", _UNIT_SUFFIX.sub("", name.strip())).lower()


def _unit(roles: Roles) -> Unit:
    """By the column's name; the Mooncake form counts milliseconds under a bare `timestamp`."""
    if roles.time is None:
        return ""
    if found := _UNIT_SUFFIX.search(roles.time[-1]):
        return _UNITS[found.group(1).lower()]
    mooncake = roles.blocks is not None or (
        roles.prompt_tokens is not None and _plain(roles.prompt_tokens[-1]) == "inputlength"
    )
    return "ms" if mooncake and _plain(roles.time[-1]) == "timestamp" else ""


def _is_count(value: Any) -> bool:
    if isinstance(value, str):
        return _NUMBER.match(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)
