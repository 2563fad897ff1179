"""A study's measurements: what has no result has no value, and can never be the best."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from dashboard.history import (
    baseline,
    best_so_far,
    config_text,
    estimate,
    parse_objective,
    points,
)


@dataclass
class Row:
    id: int
    stage: str = "search"
    state: str = "ok"
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    verdict: dict[str, Any] | None = None
    failure_kind: str | None = None
    failure_reason: str | None = None
    started_at_s: float = 0.0
    duration_s: float | None = 10.0


def measured(id: int, tps: float, verdict: str = "pass", stage: str = "search") -> Row:
    figure = {"value": tps, "low": tps - 5, "high": tps + 5, "n": 100, "unit": "tok/s"}
    clauses = [{"clause": "ttft_p95<500ms", "state": verdict, "reason": f"measured {verdict}"}]
    return Row(
        id,
        stage=stage,
        summary={"output_tps": figure},
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
    assert [p.outcome for p in found[1:4]] == ["infeasible", "feasible", "inconclusive"]
    assert found[1].reason == "measured fail"
    base = baseline(found)
    assert base is not None
    assert base.objective.value == 100


@pytest.mark.parametrize(
    "row",
    [
        Row(1, state="failed", failure_kind="configuration", failure_reason="out of memory"),
        Row(1, state="failed", summary={"output_tps": {"value": 1e9}}),
        Row(1, state="invalid", failure_reason="lag", summary={"output_tps": {"value": 1e9}}),
        Row(1, summary={"output_tps": {"value": math.inf}}),
        Row(1, summary={"output_tps": {"value": None}}),
        Row(1, summary=None),
    ],
)
def test_no_result_is_never_a_score(row: Row) -> None:
    found = points([row], OBJECTIVE)
    assert found[0].objective.value is None
    assert best_so_far(found, OBJECTIVE) is None


def test_failure_says_why_and_whose_fault() -> None:
    row = Row(1, state="failed", failure_kind="configuration", failure_reason="out of memory")
    assert points([row], OBJECTIVE)[0].reason == "out of memory (configuration)"


def test_minimise_prefers_the_smaller() -> None:
    objective = parse_objective("minimize ttft_p95")
    assert objective.unit == "s"
    rows = [Row(i, summary={"ttft_p95": {"value": v}}) for i, v in enumerate((0.3, 0.2, 0.4), 1)]
    best = best_so_far(points(rows, objective), objective)
    assert best is not None
    assert best.objective.value == 0.2


def test_config_text() -> None:
    text = config_text({"max_num_seqs": 24, "gpu_memory_utilization": 0.8512345})
    assert text == "max_num_seqs=24 gpu_memory_utilization=0.8512"
    assert config_text({}) == "as started"


def test_estimate_reads_mappings_and_numbers() -> None:
    assert estimate({"value": 1, "low": 0.5, "high": 2, "n": 7, "unit": "s"}).n == 7
    assert estimate(3.0, "tok/s").value == 3.0
    assert estimate(float("nan")).value is None
