"""One measurement in one shape: just taken, stored, or read from a file of this or another tool.

Invariant: a Run is complete in itself – reports, exports and judgements ask nothing else – and its
summary, verdict and server are exactly the dictionaries that the database keeps. What a file could
not tell is named in `source["unknown"]`, by metric, and is never computed from a stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.exchange.provenance import provenance
from tuner.records import RequestRecord, from_columns, to_columns
from tuner.stats.estimate import Estimate
from tuner.targets.base import config_text

if TYPE_CHECKING:
    from storage import Database
    from storage import Measurement as StoredMeasurement
    from tuner.measure import Measurement
    from tuner.slo import Verdict

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """Times of columns and window_s: seconds since began_unix_s, as in RequestRecord.

    columns: record field → one value per request. summary: Measurement.summary_dict(). target: who
    was measured, as far as told. source, in the summary of an imported run: format, version, file,
    load and unknown; empty for our own.
    """

    name: str
    columns: Columns
    window_s: tuple[float, float]
    began_unix_s: float
    url: str = ""
    model: str = ""
    workload: str = ""
    seed: int | None = None
    slos: str = ""
    stage: str = "bench"
    state: str = "ok"
    failure_reason: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] | None = None
    server: dict[str, Any] | None = None
    run_id: int | None = None
    study: str = ""

    @property
    def count(self) -> int:
        return len(self.columns["scheduled_s"])

    @property
    def records(self) -> list[RequestRecord]:
        return from_columns(self.columns)

    @property
    def figures(self) -> dict[str, Estimate]:
        stored: dict[str, Any] = self.summary.get("figures") or {}
        return {key: Estimate.from_dict(values) for key, values in stored.items()}

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.summary.get("counts") or {})

    @property
    def notes(self) -> list[str]:
        return [str(note) for note in self.summary.get("notes") or []]

    @property
    def invalid_reason(self) -> str:
        return str(self.summary.get("invalid_reason") or "")

    @property
    def window_why(self) -> str:
        """How the window was chosen; "" where that is not told."""
        return str((self.summary.get("window") or {}).get("why") or "")

    @property
    def ended_why(self) -> str:
        """What ended the run before its time."""
        return str(self.summary.get("ended_why") or "")

    @property
    def lag_p99_s(self) -> float:
        """NaN where the generator's lag is not known."""
        lag_s = self.summary.get("lag_p99_s")
        return math.nan if lag_s is None else float(lag_s)

    @property
    def source(self) -> dict[str, Any]:
        return dict(self.summary.get("source") or {})

    @property
    def unknown(self) -> dict[str, str]:
        """Metric → why its figures cannot be computed from these records."""
        return dict(self.source.get("unknown") or {})


def settings_text(config: Mapping[str, Any]) -> str:
    """What was set, of a measurement's configuration: it may also say who was measured."""
    return config_text({k: v for k, v in config.items() if k not in ("url", "model")}, none="")


def from_measurement(
    made: Measurement, verdict: Verdict | None = None, slos: str = "", command: str = ""
) -> Run:
    """A run that this process has just measured, at the user's command."""
    return Run(
        name="this run",
        columns=to_columns(made.records),
        window_s=made.window_s,
        began_unix_s=made.began_unix_s,
        url=made.endpoint.base_url,
        model=made.endpoint.model,
        workload=str(made.workload),
        seed=made.seed,
        slos=slos or ", ".join(c.clause.text for c in verdict.clauses) if verdict else slos,
        state="failed" if not made.counts["ok"] else "invalid" if made.invalid_reason else "ok",
        failure_reason=made.invalid_reason or (verdict.reason if verdict else ""),
        config={"url": made.endpoint.base_url, "model": made.endpoint.model},
        summary=made.summary_dict() | {"provenance": provenance(command)},
        verdict=verdict.as_dict() if verdict is not None else None,
        server=made.server.as_dict() if made.server is not None else None,
    )


def from_stored(row: StoredMeasurement, columns: Columns, study: Any = None) -> Run:
    """A row of the database with its request records; study is the row's study, where it has one.

    Raises KeyError when the measurement has no summary (it ended without a result).
    """
    summary = dict(row.summary or {})
    start_s, end_s = summary["window_s"]
    target = dict(study.target or {}) if study is not None else {}
    if study is not None and study.command:
        told = summary.get("provenance") or {}
        summary["provenance"] = {"command": study.command} | told
    config = dict(row.config)
    return Run(
        name=f"run {row.id}",
        columns=columns,
        window_s=(float(start_s), float(end_s)),
        began_unix_s=row.started_at_s,
        url=str(config.get("url") or target.get("url") or ""),
        model=str(config.get("model") or target.get("model") or ""),
        workload=str((row.workload or {}).get("text", "")),
        seed=row.seed,
        slos=row.slos or "",
        stage=row.stage,
        state=row.state,
        failure_reason=row.failure_reason or "",
        config=config,
        target=target,
        summary=summary,
        verdict=row.verdict,
        server=row.server,
        run_id=row.id,
        study=study.name if study is not None else "",
    )


def store(database: Database, run: Run) -> int:
    """Keep a run that was read from a file; its id."""
    return database.add_measurement(
        stage="bench",
        config=run.config,
        workload={"text": run.workload} if run.workload else None,
        slos=run.slos,
        seed=run.seed,
        started_at_s=run.began_unix_s,
        duration_s=run.window_s[1] - run.window_s[0],
        state=run.state,  # type: ignore[arg-type]
        failure_reason=run.failure_reason or None,
        summary=run.summary,
        verdict=run.verdict,
        server=run.server,
        records=run.columns,
    )


def header(run: Run) -> dict[str, Any]:
    """All of a run but its columns, JSON-able."""
    names = [f.name for f in fields(Run) if f.name not in ("columns", "run_id", "name")]
    return {name: getattr(run, name) for name in names} | {"window_s": list(run.window_s)}


def in_window(run: Run) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which requests were scheduled inside the window."""
    at_s = np.asarray(run.columns["scheduled_s"], dtype=float)
    inside: np.ndarray[Any, np.dtype[np.bool_]] = (at_s >= run.window_s[0]) & (
        at_s < run.window_s[1]
    )
    return inside
