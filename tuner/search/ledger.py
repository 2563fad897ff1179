"""The study's memory: every finished trial is stored at once, and read back to resume.

Invariant: what the ledger has returned from add() survives kill -9. Old measurements are rebuilt
from their raw records and judged again, so a changed SLO needs no new run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from storage import Database
from storage.errors import not_kept, readable
from storage.rows import Measurement as StoredMeasurement
from storage.rows import Stage, Study
from tuner.endpoint import Endpoint
from tuner.exchange.provenance import provenance
from tuner.measure import Measurement, summarize
from tuner.measure.cautions import GeneratorLoop
from tuner.records import from_columns, to_columns
from tuner.search.trial import Outcome, TrialInterrupted
from tuner.server_side import ServerSide
from tuner.slo import SloSet, judge
from tuner.stats import Estimate
from tuner.targets.base import config_text
from tuner.workload import Workload


class Ledger(Protocol):
    """Where outcomes go; in order of time."""

    outcomes: list[Outcome]

    def add(self, outcome: Outcome) -> None: ...

    def refresh(self) -> None:
        """Take in what other workers have stored since."""
        ...


class StudyLedger:
    """A study of the database. spent_s: what its trials took so far, all sittings together."""

    def __init__(
        self,
        database: Database,
        study: Study,
        slos: SloSet,
        workload: Workload,
        price_per_hour: float | None = None,
    ) -> None:
        self._database = database
        self._study_id = study.id
        self._slos = slos
        self._workload = workload
        self._price_per_hour = price_per_hour
        self._known: set[int] = set()
        self.outcomes: list[Outcome] = []
        self.refresh()

    @property
    def spent_s(self) -> float:
        return sum(outcome.spent_s for outcome in self.outcomes)

    def add(self, outcome: Outcome) -> None:
        made = outcome.measurement
        workload = outcome.workload or self._workload
        what = config_text(outcome.config, none=f"the {outcome.stage}")
        with not_kept(f"the measurement of {what} that has just ended"):
            outcome.measurement_id = self._database.add_measurement(
                study_id=self._study_id,
                trial_number=outcome.trial_number,
                stage=outcome.stage,
                config=outcome.config,
                workload=workload.as_dict(),
                slos=str(self._slos),
                seed=outcome.seed,
                started_at_s=outcome.started_at_s,
                duration_s=outcome.spent_s,
                state=outcome.state,
                failure_kind=outcome.failure_kind,
                failure_reason=_reason(outcome),
                summary=_summary(outcome),
                verdict=outcome.verdict.as_dict() if outcome.verdict is not None else None,
                server=made.server.as_dict() if made is not None and made.server else None,
                records=to_columns(made.records) if made is not None else None,
            )
        self._known.add(outcome.measurement_id)
        self.outcomes.append(outcome)

    def refresh(self) -> None:
        rows = self._database.list_measurements(study_id=self._study_id)
        fresh = [row for row in rows if row.id not in self._known]
        if fresh:
            self.outcomes += [self._stored(row) for row in fresh]
            self.outcomes.sort(key=lambda outcome: outcome.started_at_s)
            self._known |= {row.id for row in fresh}

    def _stored(self, row: StoredMeasurement) -> Outcome:
        return stored_outcome(
            row, self._database.load_records, self._slos, self._workload_of(row),
            self._price_per_hour,
        )  # fmt: skip

    def _workload_of(self, row: StoredMeasurement) -> Workload:
        stored = row.workload or {}
        if not stored or stored == self._workload.as_dict():
            return self._workload
        return Workload.from_dict(stored)


def keep_whole(ledger: Ledger, stopped: KeyboardInterrupt) -> None:
    """Add the trial whose load was measured whole when Ctrl-C came."""
    if isinstance(stopped, TrialInterrupted):
        ledger.add(stopped.outcome)


def stored_outcome(
    row: StoredMeasurement,
    load_records: Callable[[int], Mapping[str, Any]],
    slos: SloSet,
    workload: Workload,
    price_per_hour: float | None = None,
) -> Outcome:
    """A stored row as what it was when measured, judged under slos. StorageError."""
    outcome = Outcome(
        stage=_stage(row.stage),
        config=dict(row.config),
        seed=row.seed or 0,
        started_at_s=row.started_at_s,
        state=row.state,  # type: ignore[arg-type]
        failure_kind=row.failure_kind,  # type: ignore[arg-type]
        failure_reason=row.failure_reason or "",
        trial_number=row.trial_number,
        measurement_id=row.id,
        spent_s=row.duration_s or 0.0,
        workload=workload,
    )
    if row.state in ("ok", "invalid") and row.summary is not None:
        outcome.measurement = rebuilt(row, load_records, slos, workload, price_per_hour)
        outcome.verdict = judge(slos, outcome.measurement)
    return outcome


def rebuilt(
    row: StoredMeasurement,
    load_records: Callable[[int], Mapping[str, Any]],
    slos: SloSet,
    workload: Workload,
    price_per_hour: float | None = None,
) -> Measurement:
    """A stored measurement from its raw records, summarised under slos. StorageError."""
    summary = row.summary or {}
    accuracy = (summary.get("figures") or {}).get("accuracy")
    with readable(f"run {row.id}"):
        start_s, end_s = map(float, summary["window_s"])
        lag_p99_s = summary["lag_p99_s"]
    made = Measurement(
        endpoint=Endpoint(""),
        workload=workload,
        seed=row.seed or 0,
        window_s=(start_s, end_s),
        began_unix_s=row.started_at_s,
        records=from_columns(load_records(row.id)),
        lag_p99_s=math.nan if lag_p99_s is None else float(lag_p99_s),
        server=ServerSide.from_dict(row.server),
        price_per_hour=price_per_hour,
        ended_why=str(summary.get("ended_why") or ""),
        loop=GeneratorLoop.from_dict(summary.get("generator")),
        accuracy=None if accuracy is None else Estimate.from_dict(accuracy),
    )
    return summarize(made, slos)


def _summary(outcome: Outcome) -> dict[str, Any] | None:
    made = outcome.measurement
    if made is None:
        return None
    return made.summary_dict() | {"provenance": provenance(server=outcome.server)}


def _reason(outcome: Outcome) -> str | None:
    if not outcome.failure_reason:
        return None
    tail = f"\n{outcome.log_tail}" if outcome.log_tail else ""
    return outcome.failure_reason + tail


def _stage(text: str) -> Stage:
    stages: dict[str, Stage] = {
        "baseline": "baseline", "sweep": "sweep", "search": "search", "confirm": "confirm",
        "bench": "bench",
    }  # fmt: skip
    return stages[text]
