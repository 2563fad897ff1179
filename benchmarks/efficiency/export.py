"""From the study that benchmarks/record_surface.py leaves to a surface file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.efficiency.surface import RecordedRun, Surface
from engine.knobs import KNOBS
from storage import Database, Study
from storage.rows import Measurement
from tuner.errors import UserError
from tuner.records import from_columns
from tuner.slo import parse_slos
from tuner.workload import parse_workload


def exported(database: Database, name: str) -> Surface:
    """Raises UserError where the study is not there or holds no grid."""
    study = database.get_study(name)
    if study is None:
        raise UserError(f"{database.location}: no study {name!r}; record one first")
    rows = database.list_measurements(study_id=study.id)
    grid = {knob: tuple(values) for knob, values in (study.space or {}).get("grid", {}).items()}
    if not grid or not rows:
        raise UserError(f"study {name!r} holds no measured grid")
    target = study.target or {}
    if not target.get("kind"):
        raise UserError(f"study {name!r} does not tell what kind of target it measured")
    options = study.budget or {}
    return Surface(
        about=_about(study, rows),
        kind=str(target["kind"]),
        workload=parse_workload((study.workload or {})["text"]),
        slos=parse_slos([study.slos] if study.slos else []),
        baseline={knob: _nearest(values, KNOBS[knob].default_cpu) for knob, values in grid.items()},
        grid=grid,
        window_s=float(options["window"]),
        warmup_s=float(options["warmup"]),
        runs=[_run(database, row) for row in rows],
    )


def _about(study: Study, rows: Sequence[Measurement]) -> str:
    target = study.target or {}
    named = {name: target.get(name) for name in ("device", "dtype", "num_threads", "block_size")}
    told = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    model = Path(str(target.get("model"))).name  # where it lies on the machine says nothing
    served = [((row.summary or {}).get("provenance") or {}).get("server") for row in rows]
    server = next(filter(None, served), f"{target.get('engine')} {target.get('version')}")
    return f"{model} on {server} ({told})"


def _nearest(values: tuple[Any, ...], default: Any) -> Any:
    """The grid's value next to the engine's own default: where a study begins."""
    return min(values, key=lambda value: abs(value - default))


def _run(database: Database, row: Measurement) -> RecordedRun:
    summary = row.summary or {}
    start_s, end_s = summary.get("window_s", (0.0, 0.0))
    kept = row.state in ("ok", "invalid") and row.summary is not None
    columns: dict[str, Any] = database.load_records(row.id) if kept else {}
    return RecordedRun(
        config=dict(row.config),
        seed=row.seed or 0,
        state=row.state,
        window_s=(float(start_s), float(end_s)),
        spent_s=row.duration_s or 0.0,
        records=from_columns(columns),
        generator=summary.get("generator"),
        failure_kind=row.failure_kind,
        failure_reason=(row.failure_reason or "").partition("\n")[0],
    )
