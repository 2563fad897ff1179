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
Verified = Literal["holds", "refuted", "harmful", "undecided"]


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


@dataclass(frozen=True, slots=True)
class Verification:
    """Advice put to the test. node: of the diagnosis, None where the user named the knob.

    before and after: the configurations compared. figure: what decides ("ttft_p95"). predicted:
    {low, high, ground} of the ratio after / before, None without a prediction; realised: {ratio,
    low, high, pairs, confidence, outcome}; side_effects: the same by figure. node_before and
    node_after are states of the diagnosis. applied: the server was left at `after`.
    """

    id: int
    study_id: int | None
    created_at_s: float
    target: str | None
    node: str | None
    knob: str
    direction: str
    before: dict[str, Any]
    after: dict[str, Any]
    workload: dict[str, Any] | None
    slos: str | None
    figure: str
    predicted: dict[str, Any] | None
    realised: dict[str, Any] | None
    side_effects: dict[str, Any] | None
    node_before: str | None
    node_after: str | None
    outcome: str
    reason: str | None
    applied: bool


@dataclass(frozen=True, slots=True)
class NewVerification:
    """A verification to be stored; the database adds id and time."""

    knob: str
    direction: str
    before: dict[str, Any]
    after: dict[str, Any]
    figure: str
    outcome: Verified
    study_id: int | None = None
    target: str | None = None
    node: str | None = None
    workload: dict[str, Any] | None = None
    slos: str | None = None
    predicted: dict[str, Any] | None = None
    realised: dict[str, Any] | None = None
    side_effects: dict[str, Any] | None = None
    node_before: str | None = None
    node_after: str | None = None
    reason: str | None = None
    applied: bool = False
