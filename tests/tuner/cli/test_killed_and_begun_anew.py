"""A study that was killed and is not gone on with: what comes next begins at the server's own
settings, not at those that the kill has left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from storage import Study, open_database
from tests.storage.conftest import wait_until
from tests.tuner.cli.running import start, stop_when, stored, tuner
from tests.tuner.fake_engine import FakeEngine, program

pytestmark = pytest.mark.timeout(300)

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
FAST = [
    "--workload", "prompt=16,output=4,concurrency=8", "--duration", "500ms", "--warmup", "0s",
]  # fmt: skip
SWEEP = ["sweep", "--knob", "max_num_seqs=8,12", *FAST]
OPTIMIZE = [
    "optimize", "--knob", "max_num_seqs=8,12", "--budget", "5 trials", "--sampler", "tpe",
    "--slo", "tpot_p95<5s", *FAST,
]  # fmt: skip
VERIFY = ["verify", "--knob", "max_num_seqs=8", "--pairs", "2", *FAST]


def kill_turned(words: list[str], server: FakeEngine, folder: Path) -> None:
    process = start(*words, "--url", server.url, cwd=folder)
    stop_when(process, lambda: server.knobs["max_num_seqs"] != 16, signal.SIGKILL)
    assert server.knobs["max_num_seqs"] != 16


def studies(folder: Path) -> list[Study]:
    with open_database(folder / "slotune.db", read_only=True) as database:
        return database.list_studies()


@pytest.mark.parametrize(
    ("killed", "anew"),
    [(OPTIMIZE, OPTIMIZE), (SWEEP, SWEEP), (OPTIMIZE, VERIFY), (VERIFY, SWEEP)],
    ids=lambda words: words[0],
)
def test_the_next_one_finds_the_servers_own_settings(
    tmp_path: Path, killed: list[str], anew: list[str]
) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        kill_turned(killed, server, tmp_path)
        done = tuner(*anew, "--url", server.url, cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert server.knobs == ORIGINAL
    first, second = studies(tmp_path)
    assert f"{first.name} was cut off, and is now stopped: the server's own" in done.stderr
    assert (first.state, second.state) == ("stopped", "done")
    assert (second.target or {})["original_config"] == ORIGINAL


def test_what_was_cut_off_can_still_be_gone_on_with(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        kill_turned([*SWEEP, "--study", "a b"], server, tmp_path)
        anew = tuner(*SWEEP, "--url", server.url, cwd=tmp_path)
        assert "; --study 'a b' goes on with it" in anew.stderr
        done = tuner("sweep", "--url", server.url, "--study", "a b", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "cut off" not in done.stderr
        assert server.knobs == ORIGINAL
    assert [study.state for study in studies(tmp_path)] == ["done", "done"]


@pytest.mark.parametrize("words", [SWEEP, OPTIMIZE], ids=lambda words: words[0])
def test_a_server_started_again_is_left_at_its_own_settings(
    tmp_path: Path, words: list[str]
) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        kill_turned([*words, "--study", "s"], server, tmp_path)
        server.instance_id = "another"
        server.knobs["max_num_seqs"] = 100
        done = tuner(*words, "--study", "s", "--url", server.url, cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert server.knobs == ORIGINAL | {"max_num_seqs": 100}


def test_what_another_process_verifies_is_not_taken_for_cut_off(tmp_path: Path) -> None:
    """One machine's `localhost` is not another's: the same address, another server."""
    path = tmp_path / "slotune.db"
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        process = start(*VERIFY, "--url", server.url, cwd=tmp_path)
        wait_until(lambda: server.knobs["max_num_seqs"] != 16, "the verification to be at it")
        with FakeEngine(knobs=dict(ORIGINAL)) as other, open_database(path) as database:
            (study,) = database.list_studies()
            database.update_study(study.id, target=(study.target or {}) | {"url": other.url})
            done = tuner(*SWEEP, "--url", other.url, cwd=tmp_path)
        _, err = process.communicate(timeout=60)
    assert "cut off" not in done.stderr
    assert process.returncode in (0, 1), err


def test_what_had_a_server_of_its_own_is_stopped(tmp_path: Path) -> None:
    binary = program(tmp_path / "vllm", "vllm")
    words = [*SWEEP, "--target", "vllm", "--vllm-binary", str(binary), "--model", "m"]
    process = start(*words, "--study", "s", cwd=tmp_path)
    stop_when(process, lambda: bool(stored(tmp_path / "slotune.db", "s")), signal.SIGKILL)
    done = tuner(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "s was cut off, and is now stopped: its server has ended with it; --study s" in done.stderr
    )
    assert [study.state for study in studies(tmp_path)] == ["stopped", "done"]
