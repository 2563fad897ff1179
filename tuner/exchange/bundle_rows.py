"""Rows of a bundle as they are read: every column there, and of the kind that it holds."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from storage.rows import Measurement, MeasurementState, Stage, Study, StudyState
from tuner.errors import UserError

_WORDS: dict[type, dict[str, tuple[str, ...]]] = {
    Study: {"state": typing.get_args(StudyState)},
    Measurement: {
        "state": typing.get_args(MeasurementState),
        "stage": typing.get_args(Stage),
    },
}
"""What the columns that hold one of a few words may hold."""

Row = TypeVar("Row", Study, Measurement)


def checked_row(kind: type[Row], values: Any, what: str) -> Row:
    """what: of which row a refusal speaks. Raises UserError."""
    if not isinstance(values, dict):
        raise UserError(f"{what} is damaged: it is no object")
    hints = typing.get_type_hints(kind)
    taken: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name not in values:
            raise UserError(f"{what} is damaged: it has no {field.name!r}")
        value = values[field.name]
        if not _fits(value, hints[field.name]):
            raise UserError(f"{what} is damaged: {field.name!r} is {value!r:.40}")
        known = _WORDS[kind].get(field.name)
        if known is not None and value not in known:
            raise UserError(f"{what} is damaged: {field.name!r} is {value!r:.40}")
        taken[field.name] = float(value) if hints[field.name] is float else value
    row = kind(**taken)
    _settings(row, what)
    return row


def _settings(row: Study | Measurement, what: str) -> None:
    """Configurations hold settings, the space texts, loads their text."""
    if isinstance(row, Study):
        config = (row.target or {}).get("original_config", {})
        loads = [row.workload or {}, *_list(row.workload, "also")]
        _study_parts(row, what)
    else:
        config, loads = row.config, [row.workload or {}]
    if not isinstance(config, dict) or not all(
        isinstance(value, (str, bool)) or _fits(value, float) for value in config.values()
    ):
        raise UserError(f"{what} is damaged: its configuration holds more than settings")
    if not all(isinstance(load, dict) for load in loads):
        raise UserError(f"{what} is damaged: its workload is none")


def _study_parts(study: Study, what: str) -> None:
    """What reports tell of a study as it was stored."""
    texts = [
        text for name in ("axes", "objectives", "constraints") for text in _list(study.space, name)
    ]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{what} is damaged: its axes, objectives or constraints are no texts")
    if not isinstance((study.space or {}).get("fixed") or {}, dict):
        raise UserError(f"{what} is damaged: what it held fixed is no object")
    budget = study.budget or {}
    for name in ("window_s", "warmup_s"):
        if not _fits(budget.get(name), float | None):
            raise UserError(f"{what} is damaged: its {name} is {budget[name]!r:.40}")
    counts = (study.result or {}).get("ruled_out") or {}
    if not isinstance(counts, dict) or not all(_fits(n, int) for n in counts.values()):
        raise UserError(f"{what} is damaged: what it ruled out is no count")


def _list(values: Mapping[str, Any] | None, name: str) -> list[Any]:
    found = (values or {}).get(name) or []
    return found if isinstance(found, list) else [None]


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of the kind that a row's field holds."""
    if isinstance(hint, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(hint))
    plain = typing.get_origin(hint) or hint
    if plain is type(None):
        return value is None
    if plain in (int, float):
        number = isinstance(value, int if plain is int else (int, float))
        return number and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, plain)
