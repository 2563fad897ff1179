"""Values on their way into a row, and a row on its way out: copies that no session holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from storage.rows import Finding, Measurement, Study, Verification
from storage.schema import Base

Row = TypeVar("Row", Study, Measurement, Finding, Verification)
Json = Mapping[str, Any]


def detached(kind: type[Row], row: Base) -> Row:
    return kind(**{f.name: getattr(row, f.name) for f in dataclasses.fields(kind)})


def text(value: str | None) -> str | None:
    """PostgreSQL text cannot hold NUL, which the log tail of a crashed server may contain."""
    return None if value is None else value.replace("\x00", "")


def as_json(value: Json | None) -> dict[str, Any] | None:
    return None if value is None else dict(value)


def storable(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    return dict(value) if isinstance(value, Mapping) else value
