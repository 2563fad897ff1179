"""`tuner optimize` measures first what the diagnosis of its baseline proposes to turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import tuner
from tests.tuner.fake_engine import FakeEngine
from tests.tuner.report.stored_studies import by_hand, diagnose_first, store
from tuner.cli.baseline_diagnosis import stored_levers
from tuner.search.ledger import StudyLedger
from tuner.slo import parse_slos
from tuner.workload import Workload

pytestmark = pytest.mark.timeout(300)

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}


class Preempting(FakeEngine):
    """Its metrics tell of so many preemptions for each request."""

    each = 0

    def _metrics(self) -> str:
        done = len(self.requests)
        return (
            "vllm:num_requests_running 8\nvllm:num_requests_waiting 0\n"
            f"vllm:num_preemptions_total {self.each * done}\nvllm:request_success_total {done}\n"
        )


@pytest.mark.parametrize(
    ("each", "turned", "told"),
    [
        (1, "max_num_seqs", "diagnosis of the baseline: Preemptions: "),
        (0, "chunk_size", "diagnosis of the baseline: Nothing fires"),
    ],
)
def test_the_finding_decides_what_is_measured_first(
    tmp_path: Path, each: int, turned: str, told: str
) -> None:
    """Preempted requests ask for fewer sequences; without a finding the chunk comes first."""
    server = Preempting(knobs=dict(ORIGINAL))
    server.each = each
    with server:
        done = tuner(
            "optimize", "--url", server.url, "--study", "s", "--budget", "5 trials", "--json",
            "--workload", "prompt=16,output=4,concurrency=8", "--duration", "1s", "--warmup",
            "100ms", "--sampler", "tpe", "--slo", "tpot_p95<25ms", "--knob", "chunk_size=16:2048",
            "--knob", "max_num_seqs=4,8,16", cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert told in done.stderr
    json.loads(done.stdout)
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        rows = database.list_measurements(study_id=study.id)
    first = next(row for row in rows if row.stage == "sweep")
    assert [name for name, value in ORIGINAL.items() if first.config[name] != value] == [turned]
    assert first.config[turned] < ORIGINAL[turned]


def test_whoever_measured_the_baseline_its_stored_finding_counts(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store(path, by_hand())
    with open_database(path) as database:
        study = database.get_study("s")
        assert study is not None
        load = Workload.from_dict(study.workload or {})
        outcomes = StudyLedger(database, study, parse_slos([study.slos or ""]), load).outcomes
        assert stored_levers(database, outcomes) == []
    diagnose_first(path)
    with open_database(path) as database:
        assert stored_levers(database, outcomes) == [
            ("chunk_size", "down"), ("more replicas", "do"),
        ]  # fmt: skip
        others = [outcome for outcome in outcomes if outcome.stage != "baseline"]
        assert stored_levers(database, others) == []
