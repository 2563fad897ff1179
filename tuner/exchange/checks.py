"""What a run from a file must be before anything computes with it.

Invariant: a run that passed has whole columns of the right kinds and sane magnitudes, and a header
whose parts have the shapes that the database would have kept; everything else is a UserError that
names the part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

import numpy as np

from tuner.errors import UserError
from tuner.exchange.run import Run
from tuner.records import MOST_TOKENS, RequestRecord, RequestState
from tuner.server_side import ServerSide, crosscheck
from tuner.slo import VerdictState
from tuner.stats.estimate import Estimate

LATEST_UNIX_S = 1e11
"""The year 5138: a calendar holds it."""

LONGEST_S = 1e7
"""No run lasts four months: a time beyond is a damaged one, or of another clock."""

_KINDS = {f.name: str(f.type) for f in fields(RequestRecord)}
_TEXTS = ("url", "model", "workload", "slos", "stage", "state", "failure_reason", "study")


def checked(run: Run) -> Run:
    """The run itself. Raises UserError."""
    if not len(run.columns.get("scheduled_s", ())):
        raise UserError(f"{run.name} holds no request")
    try:
        for name, values in run.columns.items():
            _column(name, values)
        _chunks(run.columns)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{run.name}: a request cannot be read ({error})") from error
    try:
        _header(run)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{run.name}: the run's header is damaged ({error!r})") from error
    return run


def _column(name: str, values: Sequence[Any]) -> None:
    kind = _KINDS.get(name, "")
    if kind == "float":
        _each(name, values, lambda v: isinstance(v, float) and not abs(v) > LONGEST_S)
    elif kind == "int":
        limit = MOST_TOKENS if name.endswith("_tokens") else 2**53
        _each(name, values, lambda v: _whole(v) and 0 <= v <= limit)
    elif kind == "bool":
        _each(name, values, lambda v: v in (True, False))
    elif kind == "str":
        _each(name, values, lambda v: isinstance(v, str))
    elif name == "state":
        _each(name, values, lambda v: v in get_args(RequestState))
    if name == "scheduled_s":
        _each(name, values, math.isfinite)


def _chunks(columns: Mapping[str, Sequence[Any]]) -> None:
    for index, (times, tokens) in enumerate(
        zip(columns["chunk_times_s"], columns["chunk_tokens"], strict=True)
    ):
        at_s, counts = np.asarray(times, dtype=float), np.asarray(tokens)
        if at_s.ndim != 1 or at_s.shape != counts.shape:
            raise ValueError(f"request {index} has other chunks than tokens of chunks")
        if len(at_s) and not (np.abs(at_s) <= LONGEST_S).all():
            raise ValueError(f"request {index} has a chunk at no possible time")
        whole = counts.dtype.kind in "iu" or not len(counts)
        if not whole or (len(counts) and not 0 <= counts.min() <= counts.max() <= MOST_TOKENS):
            raise ValueError(f"request {index} has a chunk of no possible count of tokens")


def _each(name: str, values: Sequence[Any], good: Any) -> None:
    for index, value in enumerate(values):
        if not good(value):
            raise ValueError(f"{name} of request {index} is {value!r:.40}")


def _whole(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or hasattr(value, "dtype")


def _header(run: Run) -> None:
    for name in _TEXTS:
        if not isinstance(getattr(run, name), str):
            raise TypeError(f"{name} is no text")
    if not all(isinstance(getattr(run, name), dict) for name in ("config", "target", "summary")):
        raise TypeError("config, target or summary is no object")
    if isinstance(run.began_unix_s, bool) or not abs(run.began_unix_s) <= LATEST_UNIX_S:
        raise ValueError("began_unix_s is no time")
    if run.seed is not None and not _whole(run.seed):
        raise TypeError("seed is no whole number")
    start_s, end_s = run.window_s
    if not (-LONGEST_S < start_s <= end_s < LONGEST_S):
        raise ValueError("the window is none")
    for estimate in run.figures.values():
        _estimate(estimate)
    _summary(run)
    _verdict(run.verdict)
    crosscheck([], ServerSide.from_dict(run.server))


def _estimate(estimate: Estimate) -> None:
    if not _whole(estimate.n) or not 0 <= estimate.n <= 2**53:
        raise ValueError("a figure's n is no count")
    if not all(isinstance(text, str) for text in (estimate.unit, estimate.method, estimate.reason)):
        raise TypeError("a figure's unit, method or reason is no text")


def _summary(run: Run) -> None:
    if not all(_whole(count) for count in run.counts.values()):
        raise TypeError("a count is no number")
    if not all(isinstance(why, str) for why in run.unknown.values()):
        raise TypeError("what is unknown is no text")
    _ = (run.notes, run.lag_p99_s, run.window_why, [int(n) for _, n in _failures(run)])
    generator = run.summary.get("generator") or {}
    _ = [float(value) for value in generator.values() if value is not None]


def _failures(run: Run) -> list[tuple[str, int]]:
    return [(str(reason), count) for reason, count in run.summary.get("failures") or []]


def _verdict(verdict: Mapping[str, Any] | None) -> None:
    if verdict is None:
        return
    states = get_args(VerdictState)
    if verdict["state"] not in states or not isinstance(verdict.get("reason", ""), str):
        raise ValueError("the verdict's state or reason")
    for clause in verdict["clauses"]:
        if clause["state"] not in states or not isinstance(clause["clause"], str):
            raise ValueError("a clause's state or text")
        float(clause["bound"])
        _estimate(Estimate.from_dict(clause["estimate"]))
