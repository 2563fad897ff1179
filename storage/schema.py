"""The tables, as SQLAlchemy models: studies, measurements, request records, findings, what became
of their advice, and the history of scraped metrics.

Invariant: this file and the migrations describe the same schema (a test compares them). Optuna
keeps its own tables in the same database under plural names (`studies`, `trials`, …); ours are
singular and the revision of ours lives in VERSION_TABLE, so neither touches the other.
Times are Unix seconds, durations seconds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

VERSION_TABLE = "slotune_schema_version"

STUDY_STATES = ("running", "done", "stopped", "failed")
STAGES = ("baseline", "sweep", "search", "confirm", "bench")
MEASUREMENT_STATES = ("ok", "failed", "invalid", "aborted")
FAILURE_KINDS = ("configuration", "transient")
VERIFIED = ("holds", "refuted", "harmful", "undecided")


def one_of(column: str, words: tuple[str, ...]) -> str:
    """The SQL of a check that holds a column to a fixed set of words."""
    return f"{column} IN ({', '.join(repr(word) for word in words)})"


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON(none_as_null=True), str: Text(), float: Float(53)}  # noqa: RUF012


class StudyRow(Base):
    __tablename__ = "study"
    __table_args__ = (CheckConstraint(one_of("state", STUDY_STATES), name="state"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at_s: Mapped[float]
    updated_at_s: Mapped[float]
    state: Mapped[str]
    command: Mapped[str | None]
    target: Mapped[dict[str, Any] | None]
    workload: Mapped[dict[str, Any] | None]
    slos: Mapped[str | None]
    objective: Mapped[str | None]
    space: Mapped[dict[str, Any] | None]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    budget: Mapped[dict[str, Any] | None]
    result: Mapped[dict[str, Any] | None]
    optuna_study_name: Mapped[str | None]


class MeasurementRow(Base):
    __tablename__ = "measurement"
    __table_args__ = (
        CheckConstraint(one_of("stage", STAGES), name="stage"),
        CheckConstraint(one_of("state", MEASUREMENT_STATES), name="state"),
        CheckConstraint(one_of("failure_kind", FAILURE_KINDS), name="failure_kind"),
        Index(None, "study_id", "started_at_s"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int | None] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    trial_number: Mapped[int | None]
    stage: Mapped[str]
    config: Mapped[dict[str, Any]]
    workload: Mapped[dict[str, Any] | None]
    slos: Mapped[str | None]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    started_at_s: Mapped[float]
    duration_s: Mapped[float | None]
    state: Mapped[str]
    failure_kind: Mapped[str | None]
    failure_reason: Mapped[str | None]
    summary: Mapped[dict[str, Any] | None]
    verdict: Mapped[dict[str, Any] | None]
    server: Mapped[dict[str, Any] | None]


class RequestRecordsRow(Base):
    """All requests of one measurement, columnar and compressed (storage/columns.py)."""

    __tablename__ = "request_records"

    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurement.id", ondelete="CASCADE"), primary_key=True
    )
    count: Mapped[int]
    codec: Mapped[str]
    blob: Mapped[bytes] = mapped_column(LargeBinary)


class FindingRow(Base):
    __tablename__ = "finding"
    __table_args__ = (Index(None, "target", "created_at_s"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    measurement_id: Mapped[int | None] = mapped_column(
        ForeignKey("measurement.id", ondelete="CASCADE"), index=True
    )
    created_at_s: Mapped[float]
    target: Mapped[str | None]
    node: Mapped[str]
    state: Mapped[str]
    confidence: Mapped[str | None]
    payload: Mapped[dict[str, Any] | None]


class VerificationRow(Base):
    """One piece of advice put to the test: what was predicted, what came of it."""

    __tablename__ = "verification"
    __table_args__ = (
        CheckConstraint(one_of("outcome", VERIFIED), name="outcome"),
        Index(None, "knob", "created_at_s"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int | None] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    created_at_s: Mapped[float]
    target: Mapped[str | None]
    node: Mapped[str | None]
    knob: Mapped[str]
    direction: Mapped[str]
    before: Mapped[dict[str, Any]]
    after: Mapped[dict[str, Any]]
    workload: Mapped[dict[str, Any] | None]
    slos: Mapped[str | None]
    figure: Mapped[str]
    predicted: Mapped[dict[str, Any] | None]
    realised: Mapped[dict[str, Any] | None]
    side_effects: Mapped[dict[str, Any] | None]
    node_before: Mapped[str | None]
    node_after: Mapped[str | None]
    outcome: Mapped[str]
    reason: Mapped[str | None]
    applied: Mapped[bool]


class MetricTargetRow(Base):
    """A server whose metrics are kept."""

    __tablename__ = "metric_target"

    id: Mapped[int] = mapped_column(primary_key=True)
    address: Mapped[str] = mapped_column(unique=True)


class MetricLayoutRow(Base):
    """Which series a point's figures belong to: their texts, in order, compressed."""

    __tablename__ = "metric_layout"
    __table_args__ = (UniqueConstraint("target_id", "digest"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    target_id: Mapped[int] = mapped_column(ForeignKey("metric_target.id", ondelete="CASCADE"))
    digest: Mapped[str]
    blob: Mapped[bytes] = mapped_column(LargeBinary)


class MetricPointRow(Base):
    """All series of a target at one moment (storage/history_points.py); slot: Unix time divided by
    the resolution."""

    __tablename__ = "metric_point"

    target_id: Mapped[int] = mapped_column(
        ForeignKey("metric_target.id", ondelete="CASCADE"), primary_key=True
    )
    resolution_s: Mapped[int] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    at_s: Mapped[float]
    layout_id: Mapped[int] = mapped_column(ForeignKey("metric_layout.id"), index=True)
    codec: Mapped[str]
    blob: Mapped[bytes] = mapped_column(LargeBinary)
