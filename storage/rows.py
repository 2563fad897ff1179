"""What the database hands out: frozen rows, detached from any session.

A row is a copy; holding it holds no lock and no connection. Times are Unix seconds, durations
seconds. JSON columns come back as plain dictionaries; non-finite numbers were stored as null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

StudyState = Literal["running", "done", "stopped", "failed"]
Stage = Literal["baseline", "sweep", "search", "confirm", "bench"]
MeasurementState = Literal["ok", "failed", "invalid", "aborted"]
FailureKind = Literal["configuration", "transient"]


@dataclass(frozen=True, slots=True)
class Study:
    id: int
    name: str
    created_at_s: float
    updated_at_s: float
    state: str
    command: str | None
    target: dict[str, Any] | None
    workload: dict[str, Any] | None
    slos: str | None
    objective: str | None
    space: dict[str, Any] | None
    seed: int | None
    budget: dict[str, Any] | None
    result: dict[str, Any] | None
    optuna_study_name: str | None


@dataclass(frozen=True, slots=True)
class Measurement:
    id: int
    study_id: int | None
    trial_number: int | None
    stage: str
    config: dict[str, Any]
    workload: dict[str, Any] | None
    slos: str | None
    seed: int | None
    started_at_s: float
    duration_s: float | None
    state: str
    failure_kind: str | None
    failure_reason: str | None
    summary: dict[str, Any] | None
    verdict: dict[str, Any] | None
    server: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One node of a diagnosis. state and node are the diagnosis' own words."""

    id: int
    measurement_id: int | None
    created_at_s: float
    target: str | None
    node: str
    state: str
    confidence: str | None
    payload: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class NewFinding:
    """A finding to be stored; the database adds id, time and measurement."""

    node: str
    state: str
    confidence: str | None = None
    payload: dict[str, Any] | None = None
