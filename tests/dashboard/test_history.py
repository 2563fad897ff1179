"""A study's measurements: what has no result has no value, and can never be the best."""

import dataclasses
import math
from typing import Any

import pytest

from dashboard.charts import study_history
from dashboard.history import (
    baseline,
    best_after_each,
    best_so_far,
    config_text,
    estimate,
    parse_objective,
    points,
)
from storage import Measurement


def row(id: int, **fields: Any) -> Measurement:
    blank = dict.fromkeys(field.name for field in dataclasses.fields(Measurement))
    given = {
        "id": id, "stage": "search", "state": "ok", "config": {"trial": id}, "started_at_s": 0.0,
    }  # fmt: skip
    return Measurement(**(blank | given | fields))


def figures(**values: Any) -> dict[str, Any]:
    return {"figures": {name: {"value": value} for name, value in values.items()}}


def measured(id: int, tps: float, verdict: str = "pass", stage: str = "search") -> Measurement:
    figure = {"value": tps, "low": tps - 5, "high": tps + 5, "n": 100, "unit": "tok/s"}
    clauses = [{"clause": "ttft_p95<500ms", "state": verdict, "reason": f"measured {verdict}"}]
    return row(
        id,
        stage=stage,
        summary={"figures": {"output_tps": figure}},
        verdict={"state": verdict, "clauses": clauses},
    )


OBJECTIVE = parse_objective("maximize output_tps")


def test_best_is_the_best_that_meets_the_slos() -> None:
    rows = [
        measured(1, 100, stage="baseline"),
        measured(2, 900, "fail"),
        measured(3, 150),
        measured(4, 800, "inconclusive"),
        measured(5, 120),
    ]
    found = points(rows, OBJECTIVE)
    best = best_so_far(found, OBJECTIVE)
    assert best is not None
    assert best.measurement_id == 3
    assert [p.outcome for p in found[1:4]] == ["missed", "met", "undecided"]
    assert found[1].reason == "ttft_p95<500ms: measured fail"
    base = baseline(found)
    assert base is not None
    assert base.objective.value == 100


def test_a_confirmation_takes_back_a_best_that_misses_again() -> None:
    rows = [
        measured(1, 100, stage="baseline"),
        dataclasses.replace(measured(2, 300), config={"max_num_seqs": 8}),
        dataclasses.replace(measured(3, 200), config={"max_num_seqs": 4}),
        dataclasses.replace(measured(4, 310, "fail", "confirm"), config={"max_num_seqs": 8}),
        dataclasses.replace(measured(5, 190, stage="confirm"), config={"max_num_seqs": 4}),
        row(6, stage="confirm", state="failed", config={"max_num_seqs": 4}),
    ]
    found = points(rows, OBJECTIVE)
    line = best_after_each(found, OBJECTIVE)
    assert [p.measurement_id if p else None for p in line] == [1, 2, 2, 3, 5, 5]
    assert best_so_far(found, OBJECTIVE) is found[4]
    chart = study_history(found, OBJECTIVE, 100.0).to_dict()
    (drawn,) = [data for data in chart["datasets"].values() if "best" in data[0]]
    assert [row["best"] for row in drawn] == [100, 300, 300, 200, 190, 190]


@pytest.mark.parametrize(
    "stored",
    [
        row(1, state="failed", failure_kind="configuration", failure_reason="out of memory"),
        row(1, state="failed", summary=figures(output_tps=1e9)),
        row(1, state="aborted", summary=figures(output_tps=1e9)),
        row(1, state="invalid", failure_reason="lag", summary=figures(output_tps=1e9)),
        row(1, summary=figures(output_tps="inf")),
        row(1, summary=figures(output_tps=None)),
        row(1, summary={}),
        row(1),
    ],
)
def test_no_result_is_never_a_score(stored: Measurement) -> None:
    found = points([stored], OBJECTIVE)
    assert found[0].objective.value is None
    assert best_so_far(found, OBJECTIVE) is None


def test_failure_says_why_and_whose_fault() -> None:
    failed = row(1, state="failed", failure_kind="configuration", failure_reason="out of memory")
    assert points([failed], OBJECTIVE)[0].reason == "out of memory (configuration)"


def test_minimise_prefers_the_smaller() -> None:
    objective = parse_objective("minimize ttft_p95")
    assert objective.unit == "s"
    rows = [row(i, summary=figures(ttft_p95=v)) for i, v in enumerate((0.3, 0.2, 0.4), 1)]
    best = best_so_far(points(rows, objective), objective)
    assert best is not None
    assert best.objective.value == 0.2


@pytest.mark.parametrize(
    ("metric", "unit"),
    [("ttft_p95", "s"), ("goodput", "req/s"), ("attainment", "ratio"), ("cost_per_mtok", "$"),
     ("accuracy", "ratio"), ("something", "")],
)  # fmt: skip
def test_units(metric: str, unit: str) -> None:
    assert parse_objective(f"maximize {metric}").unit == unit


def level(id: int, clients: int, verdict: str, config: int = 1) -> Measurement:
    load = {"text": f"prompt=256,output=16,concurrency={clients}"}
    return dataclasses.replace(
        measured(id, 100.0, verdict), workload=load, config={"max_num_seqs": config}
    )


def test_a_capacity_is_the_highest_level_met_below_every_missed_one() -> None:
    load = {"text": "prompt=256,output=16,concurrency=4"}
    objective = parse_objective("maximize capacity", load)
    assert objective.unit == "clients"
    rows = [
        level(1, 4, "pass"), level(2, 16, "fail"), level(3, 8, "pass"), level(4, 12, "pass"),
        level(5, 10, "fail"), level(6, 9, "pass", config=2),
        dataclasses.replace(level(7, 99, "pass"), state="failed"),
        dataclasses.replace(level(8, 99, "pass"), workload={"text": "trace=/gone"}),
    ]  # fmt: skip
    found = points(rows, objective)
    assert [p.objective.value for p in found] == [4, 16, 8, 12, 10, 9, None, None]
    line = best_after_each(found, objective)
    assert [p.measurement_id if p else None for p in line] == [1, 1, 3, 4, 3, 6, 6, 6]


def test_config_text() -> None:
    known = {"max_num_seqs": 24, "gpu_memory_utilization": 0.85, "enforce_eager": True}
    text = config_text(known | {"dtype": None})
    assert text == "max_num_seqs=24 gpu_memory_utilization=0.85 enforce_eager=true"
    assert config_text({}) == "as started"


def test_estimate_reads_what_the_tuner_stores() -> None:
    assert estimate({"value": 1, "low": 0.5, "high": 2, "n": 7, "unit": "share"}).unit == "ratio"
    assert estimate({"value": "inf", "low": 1.0, "high": "inf"}).value == math.inf
    assert estimate({"value": None}).value is None
