"""Rows of a bundle as they are read: every column there, and of the kind that it holds."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from storage.rows import (
    Finding,
    Measurement,
    MeasurementState,
    Stage,
    Study,
    StudyState,
    Verification,
    Verified,
)
from tuner.diagnosis.model import Lever, NodeResult, State, node_from_dict
from tuner.errors import UserError
from tuner.stats.compare import Outcome

_WORDS: dict[type, dict[str, tuple[str, ...]]] = {
    Study: {"state": typing.get_args(StudyState)},
    Measurement: {
        "state": typing.get_args(MeasurementState),
        "stage": typing.get_args(Stage),
    },
    Finding: {"state": tuple(State)},
    Verification: {"outcome": typing.get_args(Verified)},
}
"""What the columns that hold one of a few words may hold."""

_PREDICTED = {"low": float, "high": float, "ground": str}
_REALISED = {
    "ratio": float | None, "low": float | None, "high": float | None, "pairs": int,
    "confidence": float, "outcome": typing.get_args(Outcome), "method": str | None,
    "prediction": (None, "as predicted", "below", "above"),
}  # fmt: skip
"""What the objects of a verification hold."""

Row = TypeVar("Row", Study, Measurement, Finding, Verification)


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
    _parts(row, what)
    return row


def _parts(row: Study | Measurement | Finding | Verification, what: str) -> None:
    """What the columns that hold objects hold."""
    if isinstance(row, Finding):
        return _node(row, what)
    if isinstance(row, Study):
        _settings([(row.target or {}).get("original_config", {})], what)
        _loads([row.workload or {}, *_list(row.workload, "also")], what)
        return _study_parts(row, what)
    _loads([row.workload or {}], what)
    if isinstance(row, Measurement):
        return _settings([row.config], what)
    _settings([row.before, row.after], what)
    if row.knob not in row.before or row.knob not in row.after:
        raise UserError(f"{what} is damaged: its configurations have no {row.knob!r:.40}")
    return _ratios(row, what)


def _settings(configs: list[Any], what: str) -> None:
    for config in configs:
        if not isinstance(config, dict) or not all(
            isinstance(value, (str, bool)) or _fits(value, float) for value in config.values()
        ):
            raise UserError(f"{what} is damaged: its configuration holds more than settings")


def _loads(loads: list[Any], what: str) -> None:
    if not all(isinstance(load, dict) for load in loads):
        raise UserError(f"{what} is damaged: its workload is none")


def _node(row: Finding, what: str) -> None:
    """The node is one of the tree's, its texts are texts and its numbers numbers."""
    try:
        node = node_from_dict(row.payload or {})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{what} is damaged: its node cannot be read ({error!r:.80})") from error
    texts = [*node.will_not_help, *node.missing, *node.queries, *sum(node.evidence, ())]
    whole = _all_fit(node, NodeResult) and all(_all_fit(lever, Lever) for lever in node.levers)
    if not whole or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{what} is damaged: its node holds what is none of its parts")


def _all_fit(value: Any, kind: type) -> bool:
    return all(_fits(getattr(value, n), hint) for n, hint in typing.get_type_hints(kind).items())


def _ratios(row: Verification, what: str) -> None:
    """Predicted and realised ratios are numbers, or null where there is none."""
    if row.predicted is not None and not _holds(row.predicted, _PREDICTED):
        raise UserError(f"{what} is damaged: its prediction is none")
    if row.realised is not None and not _holds(row.realised, _REALISED):
        raise UserError(f"{what} is damaged: what was realised is no ratio")


def _holds(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> bool:
    """Words for a kind are what it may be."""
    return all(
        values.get(name) in kind if isinstance(kind, tuple) else _fits(values.get(name), kind)
        for name, kind in kinds.items()
    )


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
