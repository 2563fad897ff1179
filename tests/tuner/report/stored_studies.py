"""Studies in a database, made by hand of a few requests each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from storage import NewVerification, open_database
from storage.errors import StorageError
from tests.tuner.runs import failed, good, run
from tests.tuner.search.synthetic import DEFAULTS, LOAD
from tuner.diagnosis import Confidence, Lever, NodeResult, State
from tuner.diagnosis.stored import findings_of
from tuner.exchange.bundle import StoredStudy, of_database
from tuner.records import RequestRecord
from tuner.report.study import StudyReport, study_report
from tuner.search.ledger import StudyLedger
from tuner.search.objective import Objective
from tuner.search.trial import Outcome
from tuner.slo import judge, parse_slos
from tuner.workload import parse_workload

AXES = ["max_num_seqs=1:256:log", "chunk_size=1:8192:log", "gpu_memory_utilization=0.1:0.9:lin"]


def store(
    path: Path,
    outcomes: Sequence[Outcome],
    *,
    name: str = "s",
    slos: str = "ttft_p95<500ms",
    objectives: Sequence[Objective] = (Objective(),),
    loads: Sequence[str] = (LOAD,),
    axes: Sequence[str] = tuple(AXES),
    target: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
    state: str = "done",
    command: str = "tuner optimize",
) -> None:
    """A study as `tuner optimize` keeps it."""
    texts = [parse_workload(text).as_dict() for text in loads]
    with open_database(path) as database:
        study = database.create_study(
            name, command=command, slos=slos, seed=0, objective=str(objectives[0]),
            target={"kind": "slotune", "model": "m", "original_config": DEFAULTS} | (target or {}),
            workload=texts[0] | ({"also": texts[1:]} if texts[1:] else {}),
            space={
                "axes": list(axes), "fixed": {}, "constraints": [], "price_per_hour": 3.6,
                "objectives": [str(objective) for objective in objectives],
            },
            budget={"text": "20 trials", "window_s": 10.0, "warmup_s": 2.0},
        )  # fmt: skip
        parsed = parse_slos([slos] if slos else [])
        ledger = StudyLedger(database, study, parsed, parse_workload(loads[0]), 3.6)
        for outcome in outcomes:
            ledger.add(outcome)
        database.update_study(study.id, state=state, result=result)


def measured(
    config: dict[str, Any],
    *,
    stage: str = "search",
    seed: int = 0,
    at_s: float = 0.0,
    ttft_s: float = 0.1,
    count: int = 60,
    slos: str = "ttft_p95<500ms",
    records: list[RequestRecord] | None = None,
    load: str = LOAD,
) -> Outcome:
    """One measurement of 10 s: count requests with about one time to first token."""
    made_of = records
    if made_of is None:
        made_of = [
            good(i, at_s=10 * i / count, ttft_s=ttft_s * (1 + (i % 7) / 100)) for i in range(count)
        ]
    parsed = parse_slos([slos])
    made = run(made_of, parsed, workload=load, price_per_hour=3.6)
    return Outcome(
        stage, config, seed, 1_000.0 + at_s, "ok", made, judge(parsed, made), spent_s=12.0,  # type: ignore[arg-type]
        workload=parse_workload(load),
    )  # fmt: skip


def broken(
    config: dict[str, Any], reason: str, *, stage: str = "search", at_s: float = 0.0, seed: int = 0
) -> Outcome:
    return Outcome(
        stage, config, seed, 1_000.0 + at_s, "failed", failure_kind="configuration",  # type: ignore[arg-type]
        failure_reason=reason, log_tail="last words of the server", spent_s=3.0,
        workload=parse_workload(LOAD),
    )  # fmt: skip


def all_requests_failed(config: dict[str, Any]) -> Outcome:
    return measured(config, records=[failed(i, at_s=i / 10) for i in range(60)])


def by_hand() -> list[Outcome]:
    """Two baselines that miss 500 ms, three points of one knob, a confirmation of the best."""
    fast = DEFAULTS | {"chunk_size": 256}
    slow = DEFAULTS | {"chunk_size": 1024}
    return [
        measured(DEFAULTS, stage="baseline", ttft_s=0.8, seed=0, at_s=0),
        measured(DEFAULTS, stage="baseline", ttft_s=0.8, seed=1, at_s=20),
        measured(slow, stage="sweep", ttft_s=0.6, count=80, seed=2, at_s=40),
        measured(fast, ttft_s=0.2, count=70, seed=3, at_s=60),
        broken(DEFAULTS | {"chunk_size": 8192}, "out of memory", at_s=80, seed=4),
        measured(DEFAULTS, stage="confirm", ttft_s=0.8, seed=100, at_s=100),
        measured(fast, stage="confirm", ttft_s=0.2, count=70, seed=100, at_s=120),
        measured(fast, stage="confirm", ttft_s=0.2, count=70, seed=101, at_s=140),
        measured(DEFAULTS, stage="confirm", ttft_s=0.8, seed=101, at_s=160),
    ]


def store_sweep(
    path: Path,
    outcomes: Sequence[Outcome],
    *,
    knobs: Sequence[str] = ("chunk_size=256,1024,2048",),
    load_knobs: Sequence[str] = (),
    slos: str = "ttft_p95<500ms",
    loads: Sequence[str] = (LOAD,),
    points: int = 5,
    constraints: Sequence[str] = (),
    state: str = "done",
    own: Mapping[str, Any] = DEFAULTS,
) -> None:
    """A study as `tuner sweep` keeps it."""
    texts = [parse_workload(text).as_dict() for text in loads]
    with open_database(path) as database:
        study = database.create_study(
            "s", command="tuner sweep --knob …", slos=slos, seed=0, objective=str(Objective()),
            target={"kind": "slotune", "model": "m", "original_config": dict(own)},
            workload=texts[0] | ({"also": texts[1:]} if texts[1:] else {}),
            space={
                "axes": list(knobs), "load_knobs": list(load_knobs), "fixed": {},
                "constraints": list(constraints),
            },
            budget={"points": points, "repeat": 1, "window_s": 10.0, "warmup_s": 2.0},
        )  # fmt: skip
        ledger = StudyLedger(
            database, study, parse_slos([slos] if slos else []), parse_workload(loads[0])
        )
        for outcome in outcomes:
            ledger.add(outcome)
        database.update_study(study.id, state=state)


def swept(load: str = LOAD) -> list[Outcome]:
    """Three values of one knob, the largest the server's own: it misses 500 ms."""
    figures = {256: (0.2, 60), 1024: (0.4, 70), 2048: (0.8, 80)}
    return [
        measured(
            DEFAULTS | {"chunk_size": chunk}, stage="sweep", at_s=20.0 * place, ttft_s=ttft_s,
            count=count, load=load,
        )
        for place, (chunk, (ttft_s, count)) in enumerate(figures.items())
    ]  # fmt: skip


AFTER = DEFAULTS | {"chunk_size": 256}
VERIFIED = NewVerification(
    knob="chunk_size", direction="down", before=dict(DEFAULTS), after=AFTER, figure="ttft_p95",
    outcome="holds", node="4.interference", slos="ttft_p95<500ms",
    workload=parse_workload(LOAD).as_dict(),
    predicted={"low": 0.2, "high": 1.0, "ground": "by arithmetic"},
    realised={
        "ratio": 0.25, "low": 0.24, "high": 0.26, "outcome": "improved", "pairs": 2,
        "confidence": 0.9875, "prediction": "as predicted",
    },
    side_effects={}, node_before="critical", node_after="ok", reason="ttft_p95 is better",
)  # fmt: skip


def pairs(count: int = 2) -> list[Outcome]:
    """Before and after in turn: a smaller chunk answers four times as soon."""
    return [
        measured(
            config, stage="confirm", seed=100 + turn, at_s=40.0 * turn + 20 * place, ttft_s=ttft_s
        )
        for turn in range(count)
        for place, (config, ttft_s) in enumerate([(DEFAULTS, 0.8), (AFTER, 0.2)])
    ]


def store_verification(
    path: Path,
    outcomes: Sequence[Outcome],
    verification: NewVerification | None = VERIFIED,
    *,
    name: str = "v",
    state: str = "done",
    target: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
) -> None:
    """A study as `tuner verify` keeps it."""
    with open_database(path) as database:
        study = database.create_study(
            name, command="tuner verify --node 4.interference", slos="ttft_p95<500ms", seed=0,
            target={"kind": "slotune", "model": "m", "original_config": DEFAULTS} | (target or {}),
            workload=parse_workload(LOAD).as_dict(), objective="minimize ttft_p95",
            space={"axes": ["node 4.interference"], "fixed": DEFAULTS},
            budget={"pairs": 5, "window_s": 10.0, "warmup_s": 2.0},
        )  # fmt: skip
        ledger = StudyLedger(database, study, parse_slos(["ttft_p95<500ms"]), parse_workload(LOAD))
        for outcome in outcomes:
            ledger.add(outcome)
        if verification is not None:
            database.add_verification(replace(verification, study_id=study.id))
        database.update_study(study.id, state=state, result=result)


SMALLER = Lever("chunk_size", "down", "decodes are interrupted for less time", "TTFT rises")
CAUSE = NodeResult(
    "4.interference", "Prefill interrupts decodes", State.CRITICAL, "p99 of gaps is 5 × p50",
    levers=(SMALLER, Lever("more replicas", "do", "divides the load", "one more device")),
    confidence=Confidence.HIGH, evidence=(("itl_p99", "100 ms"),),
)  # fmt: skip
NODES = (
    NodeResult("1", "Stall", State.OK, "steps follow each other"),
    CAUSE,
    NodeResult("3", "TTFT", State.WARNING, "late", symptom_of="4.interference"),
    NodeResult("5", "Cache", State.CANT_TELL, "no metric", missing=("prefix_cache_queries",)),
)


def diagnose_first(path: Path, nodes: Sequence[NodeResult] = NODES, name: str = "s") -> None:
    """The first measurement of a study has these findings."""
    with open_database(path) as database:
        study = database.get_study(name)
        assert study is not None
        first = database.list_measurements(study_id=study.id)[0]
        database.add_findings(findings_of(nodes), measurement_id=first.id, at_s=1_000.0)


def loaded(path: Path, name: str = "s") -> StoredStudy:
    """Detached from the database: its records are read at once."""
    with open_database(path, read_only=True) as database:
        stored = of_database(database, name)
        kept = {
            row.id: database.load_records(row.id)
            for row in stored.measurements
            if row.summary is not None
        }

    def load(measurement_id: int) -> Mapping[str, Any]:
        if measurement_id not in kept:
            raise StorageError(f"measurement {measurement_id} has no request records")
        return kept[measurement_id]

    return replace(stored, load_records=load)


def report_of(path: Path, name: str = "s") -> StudyReport:
    return study_report(loaded(path, name))


def many(points: int = 12, loads: Sequence[str] = (LOAD,)) -> list[Outcome]:
    """Two baselines and points of two knobs: a larger chunk serves more and answers later."""
    outcomes = []
    for number in range(points + 2):
        chunk, seqs = 2 ** (5 + number % 6), 8 * (1 + number % 5)
        config = DEFAULTS if number < 2 else DEFAULTS | {"chunk_size": chunk, "max_num_seqs": seqs}
        for place, load in enumerate(loads):
            outcomes.append(
                measured(
                    config, stage="baseline" if number < 2 else "search", seed=number, load=load,
                    at_s=20.0 * (len(loads) * number + place), ttft_s=0.1 + chunk / 2048,
                    count=30 + chunk // 64 + number % 2,
                )
            )  # fmt: skip
    return outcomes


def capacities() -> list[Outcome]:
    """Levels of one load, probed under three configurations; each serves more than the last."""
    outcomes = []
    for number, chunk in enumerate((2048, 2048, 256, 512)):
        for level in (4, 8, 16):
            ttft_s = 0.05 * level * (1 if number < 2 else chunk / 512)
            outcomes.append(
                measured(
                    DEFAULTS | {"chunk_size": chunk}, stage="baseline" if number < 2 else "search",
                    seed=number, at_s=20.0 * len(outcomes), ttft_s=ttft_s, count=40,
                    load=f"prompt=64,output=8,rate={level}",
                )
            )  # fmt: skip
    return outcomes
