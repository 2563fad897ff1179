"""Values on their way into a row, and a row on its way out: copies that no session holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from storage.errors import StorageError
from storage.rows import Finding, Measurement, Study, Verification
from storage.schema import Base

Row = TypeVar("Row", Study, Measurement, Finding, Verification)
Json = Mapping[str, Any]

_KINDS: dict[str, tuple[type, ...]] = {
    "float": (float, int), "int": (int,), "str": (str,), "dict[str, Any]": (dict,),
    "bool": (bool,),
}  # fmt: skip


def detached(kind: type[Row], row: Base) -> Row:
    """Raises StorageError for one whose values are not of their columns' kinds: SQLite keeps what
    it is given. Of a list all are then refused, since what is told of the rest, such as which is
    the best of a study, may be untrue without it."""
    made = kind(**{name: getattr(row, name) for name, _ in _FIELDS[kind]})
    for name, kinds in _FIELDS[kind]:
        if not isinstance(value := getattr(made, name), kinds):
            what = "run" if kind is Measurement else kind.__name__.lower()
            raise StorageError(
                f"{what} {made.id} is damaged in the database: {name} is {value!r:.60}"
            )
    return made


def _fields(kind: Any) -> list[tuple[str, tuple[type, ...]]]:
    """Name and what its values may be."""
    found = []
    for field in dataclasses.fields(kind):
        declared = str(field.type)
        kinds = _KINDS[declared.removesuffix(" | None")]
        found.append((field.name, (*kinds, type(None)) if declared.endswith("None") else kinds))
    return found


_FIELDS: dict[type[Any], list[tuple[str, tuple[type, ...]]]] = {
    kind: _fields(kind) for kind in (Study, Measurement, Finding, Verification)
}


def text(value: str | None) -> str | None:
    """PostgreSQL text cannot hold NUL, which the log tail of a crashed server may contain; and no
    text holds the bytes of a file's name that are none (\udcff): they are spelt out."""
    if value is None:
        return None
    return value.replace("\x00", "").encode("utf-8", "backslashreplace").decode()


def as_json(value: Json | None) -> dict[str, Any] | None:
    return None if value is None else {key: storable(item) for key, item in value.items()}


def storable(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return as_json(value)
    return [storable(item) for item in value] if isinstance(value, (list, tuple)) else value
