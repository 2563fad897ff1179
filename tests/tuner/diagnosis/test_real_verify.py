"""Advice put to the test on a running engine: the node, a prediction, interleaved pairs, the node
cleared, and the record that is kept of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import tuner
from tests.tuner.diagnosis.real_engine import GOOD, turn
from tuner.diagnosis.server_info import server_info

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NODE = "3a.seq_cap"


def test_the_lever_of_a_node_is_tried_holds_and_clears_it(engine: str, tmp_path: Path) -> None:
    """Four places for eight clients: a queue of a whole answer; with eight, of none."""
    turn(engine, **GOOD | {"max_num_seqs": 4})
    done = tuner(
        "verify", "--url", engine, "--node", NODE, "--slo", "ttft_p95<300ms",
        "--workload", "prompt=40,output=500,concurrency=8",
        "--duration", "3s", "--warmup", "500ms", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["outcome"], found["change"]) == ("holds", "max_num_seqs 4 → 8")
    assert found["figure"] == "ttft_p95"
    assert found["realised"]["ratio"] < 0.8
    assert found["predicted"]["low"] < 1
    assert "could run at once" in found["predicted"]["ground"]
    assert found["node_before"] in ("warning", "critical")
    assert found["node_after"] == "ok"
    assert server_info(engine)["knobs"]["max_num_seqs"]["value"] == 4
    sides_alternate_and_are_stored(tmp_path, found)
    listed = tuner("verify", "--history", cwd=tmp_path).stdout
    counted = rf"^\s*{re.escape(NODE)} +max_num_seqs up +ttft_p95 +1 +0 +0 +0 "
    assert re.search(counted, listed, re.M), listed


def sides_alternate_and_are_stored(folder: Path, found: dict[str, object]) -> None:
    with open_database(folder / "slotune.db", read_only=True) as database:
        (kept,) = database.list_verifications()
        study = database.get_study(str(found["study"]))
        assert study is not None
        rows = database.list_measurements(study_id=study.id)
    assert (kept.node, kept.outcome, kept.node_after) == (NODE, "holds", "ok")
    assert kept.predicted == found["predicted"]
    assert kept.realised == found["realised"]
    assert [row.config["max_num_seqs"] for row in rows[:4]] == [4, 8, 8, 4]
    assert len({row.seed for row in rows}) * 2 == len(rows)
