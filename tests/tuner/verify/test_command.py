"""`tuner verify` as a process against a fake engine whose latency follows from its knobs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import start, stop_when, tuner
from tests.tuner.fake_engine import FakeEngine, program

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
FAST = [
    "--workload", "prompt=16,output=8,concurrency=4", "--duration", "700ms", "--warmup", "0s",
]  # fmt: skip


def engine(**more: float) -> FakeEngine:
    return FakeEngine(knobs=dict(ORIGINAL), **more)  # type: ignore[arg-type]


def test_advice_that_holds_is_proved_stored_and_undone(tmp_path: Path) -> None:
    with engine() as server:
        done = tuner(
            "verify", "--url", server.url, "--knob", "chunk_size=64", "--figure", "tpot_p50",
            "--json", *FAST, cwd=tmp_path,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["outcome"], found["change"]) == ("holds", "chunk_size 2048 → 64")
    assert found["realised"]["high"] < 1
    assert found["realised"]["pairs"] in (2, 3, 5)
    assert not found["applied"]
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        (row,) = database.list_verifications()
        assert row.realised == found["realised"]
        assert (row.knob, row.direction, row.figure) == ("chunk_size", "down", "tpot_p50")
        study = database.get_study(found["study"])
        assert study is not None
        assert (study.state, (study.result or {})["answer"]) == ("done", "improved")
        rows = database.list_measurements(study_id=study.id)
    seeds = [row.seed for row in rows]
    assert len(rows) == 2 * found["realised"]["pairs"]
    assert all(seeds.count(seed) == 2 for seed in seeds)
    sides = [row.config["chunk_size"] for row in rows]
    assert sides[:4] == [2048, 64, 64, 2048], "the order alternates"


def test_both_sides_of_a_pair_get_the_same_prompts(tmp_path: Path) -> None:
    with engine() as server:
        tuner(
            "verify", "--url", server.url, "--knob", "max_num_seqs=32", "--pairs", "2",
            "--workload", "prompt=16,output=2,rate=10", *FAST[2:], cwd=tmp_path,
        )  # fmt: skip
        prompts = [str(request["prompt"]) for request in server.requests if "prompt" in request]
    counts = {prompts.count(prompt) for prompt in prompts}
    assert 2 in counts


def test_apply_leaves_the_better_setting(tmp_path: Path) -> None:
    with engine() as server:
        done = tuner(
            "verify", "--url", server.url, "--knob", "chunk_size=64", "--figure", "tpot_p50",
            "--apply", *FAST, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.knobs == ORIGINAL | {"chunk_size": 64}
    assert "The advice holds: tpot_p50 is better" in done.stdout
    assert "the server is left at" in done.stderr
    listed = tuner("verify", "--history", cwd=tmp_path)
    assert "chunk_size down" in listed.stdout
    assert "too few to tell" in listed.stdout


def test_advice_that_does_not_hold_is_not_applied(tmp_path: Path) -> None:
    with engine() as server:
        done = tuner(
            "verify", "--url", server.url, "--knob", "chunk_size=8000", "--figure", "tpot_p50",
            "--apply", *FAST, cwd=tmp_path,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
    assert done.returncode == 1, done.stderr
    assert "The advice does not hold: tpot_p50 is worse" in done.stdout
    history = json.loads(tuner("verify", "--history", "--json", cwd=tmp_path).stdout)
    assert [record["refuted"] for record in history["advice"]] == [1]


def test_a_setting_that_fails_does_harm(tmp_path: Path) -> None:
    with engine(fail_above=100) as server:
        done = tuner(
            "verify", "--url", server.url, "--knob", "max_num_seqs=128", *FAST, cwd=tmp_path,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
    assert done.returncode == 1, done.stderr
    assert "The advice does harm: the new setting gives no result" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "what is to be verified"),
        (["--node", "3a.seq_cap", "--knob", "max_num_seqs=8"], "not allowed with"),
        (["--knob", "max_num_seqs=8", "--pairs", "1"], "--pairs must be 2 to 8"),
        (["--knob", "max_num_seqs=16"], "has already"),
        (["--knob", "max_num_seqs=8", "--figure", "speed"], "--figure speed: unknown figure"),
        (["--node", "3a.nothing"], "is no node of the tree; it has 0, 1"),
        (["--node", "1"], "node 1 (Stall)"),
        (["--node", "1"], "; no node fires that has a knob. Give the --workload"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: list[str], told: str) -> None:
    with engine() as server:
        done = tuner("verify", "--url", server.url, *words, *FAST, cwd=tmp_path)
        assert server.knobs == ORIGINAL
    assert done.returncode == 2, done.stdout
    assert told in done.stderr


def test_a_server_without_knobs_is_told(tmp_path: Path) -> None:
    with FakeEngine(kind="plain") as server:
        done = tuner("verify", "--url", server.url, "--knob", "max_num_seqs=8", *FAST, cwd=tmp_path)
    assert done.returncode == 2
    assert "no knob the tuner can turn" in done.stderr


def test_a_server_that_is_restarted_for_each_side(tmp_path: Path) -> None:
    binary = program(tmp_path / "vllm", "vllm")
    done = tuner(
        "verify", "--target", "vllm", "--vllm-binary", str(binary), "--model", "m",
        "--knob", "chunk_size=300", "--figure", "tpot_p50", "--pairs", "3", "--json", *FAST,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "holds"
    assert found["after"]["chunk_size"] == 300
    starts = list((tmp_path / ".slotune/logs").glob("*.log"))
    assert len(starts) >= 3, "before, after, and before again"


def test_history_of_nothing(tmp_path: Path) -> None:
    open_database(tmp_path / "slotune.db").close()
    assert "no advice was verified yet" in tuner("verify", "--history", cwd=tmp_path).stdout


def test_ctrl_c_keeps_what_was_measured_and_restores_the_server(tmp_path: Path) -> None:
    path = tmp_path / "slotune.db"

    def measured() -> int:
        if not path.exists():
            return 0
        try:
            with open_database(path, read_only=True) as database:
                return len(database.list_measurements())
        except Exception:  # the schema is being made
            return 0

    with engine() as server:
        process = start(
            "verify", "--url", server.url, "--knob", "chunk_size=1024", "--pairs", "8", *FAST,
            cwd=tmp_path,
        )  # fmt: skip
        stop_when(process, lambda: measured() >= 2, signal.SIGINT)
        assert server.knobs == ORIGINAL
    assert process.returncode == 130
    with open_database(path, read_only=True) as database:
        assert database.list_studies()[0].state == "stopped"
        assert database.list_verifications() == []


def test_after_kill_the_same_command_puts_the_settings_back_and_begins_anew(tmp_path: Path) -> None:
    words = ["--knob", "max_num_seqs=8", "--pairs", "2", *FAST]
    with engine() as server:
        process = start("verify", "--url", server.url, *words, cwd=tmp_path)
        stop_when(process, lambda: server.knobs["max_num_seqs"] == 8, signal.SIGKILL)
        assert server.knobs["max_num_seqs"] == 8
        done = tuner("verify", "--url", server.url, *words, cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert "was cut off, and is now stopped: the server's own max_num_seqs=16" in done.stderr
        assert server.knobs == ORIGINAL
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        first, second = database.list_studies()
        rows = database.list_measurements(study_id=second.id)
    assert (first.state, second.state) == ("stopped", "done")
    assert [row.config["max_num_seqs"] for row in rows] == [16, 8, 8, 16]


def test_a_server_that_was_started_again_since_keeps_its_settings(tmp_path: Path) -> None:
    with engine() as server:
        words = ["verify", "--url", server.url, "--pairs", "2", *FAST]
        process = start(*words, "--knob", "max_num_seqs=8", cwd=tmp_path)
        stop_when(process, lambda: server.knobs["max_num_seqs"] == 8, signal.SIGKILL)
        server.instance_id = "another"
        done = tuner(*words, "--knob", "max_num_seqs=16", cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert server.knobs["max_num_seqs"] == 8
    assert "cut off, and is now stopped: the server has its own settings" in done.stderr
