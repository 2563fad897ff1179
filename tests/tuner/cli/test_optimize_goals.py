"""`tuner optimize` with other goals than one figure under one load, against a fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import tuner
from tests.tuner.fake_engine import FakeEngine
from tuner.workload import Workload

pytestmark = pytest.mark.timeout(300)

KNOBS = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
COMMON = [
    "--duration", "500ms", "--warmup", "100ms", "--sampler", "tpe", "--knob", "chunk_size=64:2048",
    "--json", "--study", "s",
]  # fmt: skip
LOAD = "prompt=16,output=4,concurrency=4"


def optimized(tmp_path: Path, *words: str, timeout_s: float = 200) -> dict[str, object]:
    with FakeEngine(knobs=dict(KNOBS)) as server:
        done = tuner(
            "optimize", "--url", server.url, *COMMON, *words, cwd=tmp_path, timeout_s=timeout_s
        )
        assert server.knobs == KNOBS
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_capacity_probes_levels_and_is_resumed_without_measuring(tmp_path: Path) -> None:
    words = ["--maximize", "capacity", "--slo", "tpot_p95<48ms", "--workload", LOAD]
    result = optimized(tmp_path, *words, "--budget", "6 trials")
    assert result["objective"] == "maximize capacity"
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        rows = database.list_measurements(study_id=study.id)
    levels = [Workload.from_dict(row.workload or {}).arrivals.level for row in rows]
    assert len(set(levels)) > 2
    again = optimized(tmp_path, "--budget", "5 trials")
    assert again["baseline"] == result["baseline"]


def test_two_objectives_give_a_stored_front(tmp_path: Path) -> None:
    result = optimized(
        tmp_path, "--maximize", "output_tps", "--minimize", "tpot_p95", "--workload", LOAD,
        "--budget", "12 trials",
    )  # fmt: skip
    assert result["objectives"] == ["maximize output_tps", "minimize tpot_p95"]
    front = result["front"]
    assert isinstance(front, list)
    assert front
    assert all({"config", "runs", "figures"} <= point.keys() for point in front)
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
    assert study is not None
    assert study.result is not None
    assert len(study.result["front"]) == len(front)
    assert study.objective == "maximize output_tps"


def test_two_loads_are_measured_in_each_trial_and_told_apart(tmp_path: Path) -> None:
    other = "prompt=32,output=8,concurrency=4"
    result = optimized(
        tmp_path, "--workload", LOAD, "--workload", other, "--slo", "tpot_p95<5s",
        "--budget", "7 trials",
    )  # fmt: skip
    baseline = result["baseline"]
    assert isinstance(baseline, dict)
    assert list(baseline["by_load"]) == [LOAD, other]
    assert result["workload"] == f"{LOAD} and {other}"
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        rows = database.list_measurements(study_id=study.id)
    texts = [(row.workload or {})["text"] for row in rows]
    assert texts.count(LOAD) == texts.count(other) == len(rows) / 2
