"""The door to the database: plain methods, one transaction each, frozen rows out.

Invariant: a measurement and its request records are stored together or not at all. Transactions
are those of transactions.py: a Database may be used from several threads.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from storage import columns, location, migrate
from storage.errors import ConflictError, StorageError, StudyExistsError
from storage.faults import translated
from storage.rows import (
    FailureKind,
    Finding,
    Measurement,
    MeasurementState,
    NewFinding,
    NewVerification,
    Stage,
    Study,
    StudyState,
    Verification,
)
from storage.schema import (
    FindingRow,
    MeasurementRow,
    RequestRecordsRow,
    StudyRow,
    VerificationRow,
)
from storage.transactions import Opened
from storage.values import Json, as_json, detached, storable, text

_MAX_ID = 2**31 - 1
"""The largest id of either database: PostgreSQL's integer. Beyond it the drivers raise."""

_STUDY_FIELDS = frozenset(f.name for f in dataclasses.fields(Study)) - {"id", "created_at_s"}


def open_database(
    url_or_path: str | os.PathLike[str] | None = None, *, read_only: bool = False
) -> Database:
    """Opens `slotune.db` here, a path, or an sqlite/postgresql URL; migrates unless read_only.

    read_only never creates, migrates or locks. Raises StorageError.
    """
    where = location.parse(url_or_path)
    with translated(where.text, "opened"):
        engine = location.connect(where, read_only=read_only)
        try:
            if read_only:
                migrate.check_readable(engine, where.text)
            else:
                migrate.upgrade(engine, where.text)
        except BaseException:
            engine.dispose()
            raise
    return Database(engine, where, read_only=read_only)


class Database(Opened):
    """Made by open_database."""

    def create_study(
        self,
        name: str,
        *,
        command: str | None = None,
        target: Json | None = None,
        workload: Json | None = None,
        slos: str | None = None,
        objective: str | None = None,
        space: Json | None = None,
        seed: int | None = None,
        budget: Json | None = None,
        optuna_study_name: str | None = None,
        state: StudyState = "running",
    ) -> Study:
        """Raises StorageError when the name is empty, StudyExistsError when it is taken."""
        if not name.strip():
            raise StorageError("a study needs a name that is not empty")
        now_s = time.time()
        row = StudyRow(
            name=name,
            created_at_s=now_s,
            updated_at_s=now_s,
            state=state,
            command=text(command),
            target=as_json(target),
            workload=as_json(workload),
            slos=text(slos),
            objective=text(objective),
            space=as_json(space),
            seed=seed,
            budget=as_json(budget),
            result=None,
            optuna_study_name=optuna_study_name,
        )
        taken = StudyExistsError(f"a study named {name!r} exists in {self.location} already")
        try:
            with self._write() as session:
                if session.scalar(select(StudyRow.id).where(StudyRow.name == name)) is not None:
                    raise taken
                session.add(row)
                session.flush()
                return detached(Study, row)
        except ConflictError as fault:
            raise taken from fault

    def get_study(self, name_or_id: str | int) -> Study | None:
        """By name (text) or id (int); None when there is none."""
        column = StudyRow.id if isinstance(name_or_id, int) else StudyRow.name
        wanted = text(name_or_id) if isinstance(name_or_id, str) else name_or_id
        with self._read() as session:
            row = session.scalar(select(StudyRow).where(column == wanted))
            return None if row is None else detached(Study, row)

    def list_studies(self) -> list[Study]:
        """Oldest first."""
        with self._read() as session:
            rows = session.scalars(select(StudyRow).order_by(StudyRow.created_at_s, StudyRow.id))
            return [detached(Study, row) for row in rows]

    def update_study(self, study_id: int, **fields: Any) -> Study:
        """Sets the fields given and updated_at_s. Raises StorageError for an unknown study."""
        unknown = set(fields) - _STUDY_FIELDS
        if unknown:
            raise TypeError(f"a study has no field {', '.join(sorted(unknown))}")
        with self._write() as session:
            row = session.get(StudyRow, study_id)
            if row is None:
                raise StorageError(f"there is no study {study_id} in {self.location}")
            for name, value in ({"updated_at_s": time.time()} | fields).items():
                setattr(row, name, storable(value))
            session.flush()
            return detached(Study, row)

    def add_measurement(
        self,
        *,
        stage: Stage,
        config: Json,
        started_at_s: float,
        state: MeasurementState = "ok",
        study_id: int | None = None,
        trial_number: int | None = None,
        workload: Json | None = None,
        slos: str | None = None,
        seed: int | None = None,
        duration_s: float | None = None,
        failure_kind: FailureKind | None = None,
        failure_reason: str | None = None,
        summary: Json | None = None,
        verdict: Json | None = None,
        server: Json | None = None,
        records: Mapping[str, Sequence[Any] | columns.Column] | None = None,
    ) -> int:
        """Stores a measurement with its request records in one transaction; returns its id."""
        encoded = columns.encode(records) if records is not None else None
        row = MeasurementRow(
            study_id=study_id,
            trial_number=trial_number,
            stage=stage,
            config=dict(config),
            workload=as_json(workload),
            slos=text(slos),
            seed=seed,
            started_at_s=started_at_s,
            duration_s=duration_s,
            state=state,
            failure_kind=failure_kind,
            failure_reason=text(failure_reason),
            summary=as_json(summary),
            verdict=as_json(verdict),
            server=as_json(server),
        )
        with self._write() as session:
            session.add(row)
            session.flush()
            if encoded is not None:
                count, blob = encoded
                session.add(
                    RequestRecordsRow(
                        measurement_id=row.id, count=count, codec=columns.CODEC, blob=blob
                    )
                )
            if study_id is not None and (study := session.get(StudyRow, study_id)) is not None:
                study.updated_at_s = time.time()
            return row.id

    def get_measurement(self, measurement_id: int) -> Measurement | None:
        """None when there is none of that id, however large a number it is."""
        if abs(measurement_id) > _MAX_ID:
            return None
        with self._read() as session:
            row = session.get(MeasurementRow, measurement_id)
            return None if row is None else detached(Measurement, row)

    def list_measurements(
        self, study_id: int | None = None, stage: Stage | None = None
    ) -> list[Measurement]:
        """In order of start; None means all."""
        query = select(MeasurementRow).order_by(MeasurementRow.started_at_s, MeasurementRow.id)
        if study_id is not None:
            query = query.where(MeasurementRow.study_id == study_id)
        if stage is not None:
            query = query.where(MeasurementRow.stage == stage)
        with self._read() as session:
            return [detached(Measurement, row) for row in session.scalars(query)]

    def load_records(self, measurement_id: int) -> dict[str, columns.Column]:
        """The request records by column. Raises StorageError when none were stored."""
        with self._read() as session:
            row = session.get(RequestRecordsRow, measurement_id)
            if row is None:
                raise StorageError(
                    f"measurement {measurement_id} in {self.location} has no request records"
                )
            try:
                return columns.decode(row.codec, row.blob)
            except ValueError as fault:
                raise StorageError(f"measurement {measurement_id}: {fault}") from fault

    def add_findings(
        self,
        findings: Iterable[NewFinding],
        *,
        target: str | None = None,
        measurement_id: int | None = None,
        at_s: float | None = None,
    ) -> list[int]:
        """Stores the findings of one diagnosis together; returns their ids in order."""
        created_at_s = time.time() if at_s is None else at_s
        rows = [
            FindingRow(
                measurement_id=measurement_id,
                created_at_s=created_at_s,
                target=text(target),
                node=str(finding.node),
                state=str(finding.state),
                confidence=None if finding.confidence is None else str(finding.confidence),
                payload=as_json(finding.payload),
            )
            for finding in findings
        ]
        with self._write() as session:
            session.add_all(rows)
            session.flush()
            return [row.id for row in rows]

    def list_findings(
        self,
        *,
        measurement_id: int | None = None,
        target: str | None = None,
        since_s: float | None = None,
        limit: int | None = None,
    ) -> list[Finding]:
        """Newest first."""
        query = select(FindingRow).order_by(FindingRow.created_at_s.desc(), FindingRow.id)
        if measurement_id is not None:
            query = query.where(FindingRow.measurement_id == measurement_id)
        if target is not None:
            query = query.where(FindingRow.target == target)
        if since_s is not None:
            query = query.where(FindingRow.created_at_s >= since_s)
        with self._read() as session:
            rows = session.scalars(query if limit is None else query.limit(limit))
            return [detached(Finding, row) for row in rows]

    def add_verification(self, made: NewVerification) -> int:
        """Stores what came of a piece of advice; returns its id."""
        fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
        row = VerificationRow(
            created_at_s=time.time(), **{name: storable(value) for name, value in fields.items()}
        )
        with self._write() as session:
            session.add(row)
            session.flush()
            return row.id

    def list_verifications(self, *, knob: str | None = None) -> list[Verification]:
        """Oldest first."""
        query = select(VerificationRow).order_by(VerificationRow.created_at_s, VerificationRow.id)
        if knob is not None:
            query = query.where(VerificationRow.knob == knob)
        with self._read() as session:
            return [detached(Verification, row) for row in session.scalars(query)]
