"""Several workers on one study: one unit of work is one worker's, and the dead hold nothing."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from storage import Database, open_database
from tests.tuner.cli.running import start, stop_when, stored, tuner
from tests.tuner.fake_engine import FakeEngine
from tuner.cli import main, optimize_request, run_optimize
from tuner.cli.optimize_request import Request
from tuner.search.workers import Workers, alone, anyone_at

pytestmark = pytest.mark.timeout(300)

KNOBS = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
FAST = [
    "--workload", "prompt=16,output=4,concurrency=8", "--duration", "500ms", "--warmup", "100ms",
    "--sampler", "tpe", "--slo", "tpot_p95<25ms", "--knob", "chunk_size=16:2048",
    "--knob", "max_num_seqs=8,16",
]  # fmt: skip


def test_a_unit_is_claimed_by_one_and_finished_for_all(database: Database) -> None:
    first, second = (Workers("s", database.optuna_storage()) for _ in range(2))
    with first.turn():
        assert first.claim("baseline 0", ["x"]) == ["x"]
    with second.turn():
        assert second.claim("baseline 0", ["y"]) is None
        assert second.of_others() == {"baseline 0": ["x"]}
        assert second.claim("baseline 1", ["y"]) == ["y"]
    with first.turn():
        first.finish("baseline 0")
        assert first.is_done("baseline 0")
    with second.turn():
        assert second.claim("baseline 0", ["y"]) is None
        assert second.of_others() == {}
    assert (first.place, second.place) == (0, 1)
    assert first.others_alive()
    second.close()
    assert not first.others_alive()


def test_the_longest_name_of_a_database_leaves_room_for_its_locks(tmp_path: Path) -> None:
    with open_database(tmp_path / ("d" * 247)) as opened:
        first, second = (Workers("s", opened.optuna_storage()) for _ in range(2))
        assert first.others_alive()
        second.close()
        assert not first.others_alive()
        first.close()


def test_a_study_that_somebody_is_at(database: Database) -> None:
    storage = database.optuna_storage()
    assert not anyone_at("s", storage)
    first, second = Workers("s", storage), Workers("s", storage)
    first.close()
    assert anyone_at("s", storage)
    assert not anyone_at("another", storage)
    second.close()
    assert not anyone_at("s", storage)
    with alone("sweep", storage):
        assert anyone_at("sweep", storage)
    assert not anyone_at("sweep", storage)


def test_what_a_worker_held_that_ended_is_free_with_what_it_consisted_of(
    database: Database,
) -> None:
    first = Workers("s", database.optuna_storage())
    with first.turn():
        first.claim("confirm 0", [["a", 1]])
    first.close()
    second = Workers("s", database.optuna_storage())
    assert not second.alive(first.me)
    with second.turn():
        assert second.claim("confirm 0", [["b", 2]]) == [["a", 1]]


HOLD_A_TURN = """
import sys, time
from pathlib import Path
from storage import open_database
from tuner.search.workers import Workers
url, entered = sys.argv[1:]
with open_database(url) as opened:
    worker = Workers("s", opened.optuna_storage())
    with worker.turn():
        worker.claim("confirm 0", ["mine"])
        Path(entered).write_text(worker.me)
        time.sleep(600)
"""


def test_kill_9_inside_a_turn_leaves_no_lock(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    entered = tmp_path / "entered"
    process = subprocess.Popen([sys.executable, "-c", HOLD_A_TURN, database_url, str(entered)])
    deadline_s = time.monotonic() + 60
    while not (entered.exists() and entered.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    process.kill()
    process.wait(30)
    worker = Workers("s", database.optuna_storage())
    with worker.turn():
        assert not worker.alive(entered.read_text())
        assert worker.claim("confirm 0", ["yours"]) == ["mine"]


def test_alone_in_memory_needs_no_lock() -> None:
    worker = Workers("s")
    with worker.turn():
        assert worker.claim("baseline 0", [1]) == [1]
        assert worker.claim("baseline 0", [1]) == [1]  # mine already
    assert not worker.others_alive()


def keys(database: Path | str) -> list[tuple[object, ...]]:
    with open_database(database, read_only=True) as opened:
        study = opened.get_study("s")
        assert study is not None
        rows = opened.list_measurements(study_id=study.id)
    return [(row.stage, row.seed, json.dumps(row.config, sort_keys=True)) for row in rows]


def test_two_workers_share_a_study_and_measure_nothing_twice(
    tmp_path: Path, database_url: str
) -> None:
    with FakeEngine(knobs=dict(KNOBS)) as one, FakeEngine(knobs=dict(KNOBS)) as other:
        words = ["optimize", "--study", "s", "--database", database_url, "--json"]
        first = start(*words, *FAST, "--budget", "18 trials", "--url", one.url, cwd=tmp_path)
        deadline_s = time.monotonic() + 90
        while not stored(database_url, "s"):
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        second = start(*words, "--sampler", "tpe", "--url", other.url, cwd=tmp_path)
        results = []
        for process in (first, second):
            out, err = process.communicate(timeout=200)
            assert process.returncode in (0, 1), err
            results.append(json.loads(out))
        assert one.knobs == other.knobs == KNOBS
        assert len(one.requests) > 20
        assert len(other.requests) > 20
    counts = Counter(keys(database_url))
    assert max(counts.values()) == 1
    searched = [key[2] for key in counts if key[0] in ("sweep", "search")]
    assert len(set(searched)) == len(searched)
    assert sum(key[0] == "baseline" for key in counts) == 2
    assert len(counts) <= 18
    assert results[0]["answer"] == results[1]["answer"]
    assert results[0]["best"] == results[1]["best"]


def test_a_study_that_another_makes_meanwhile_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have looked for it and found none; the other is then done before we record ours."""
    monkeypatch.chdir(tmp_path)
    read = optimize_request.read_request
    with FakeEngine(knobs=dict(KNOBS)) as one, FakeEngine(knobs=dict(KNOBS)) as other:
        words = ["optimize", "--study", "s", "--json", *FAST, "--budget", "6 trials", "--url"]

        def read_late(args: argparse.Namespace, database: Database) -> Request:
            monkeypatch.setattr(run_optimize, "read_request", read)
            request = read(args, database)
            first = tuner(*words, other.url, cwd=tmp_path)
            assert first.returncode in (0, 1), first.stderr
            return request

        monkeypatch.setattr(run_optimize, "read_request", read_late)
        assert main([*words, one.url]) in (0, 1)
        assert one.requests == []
        assert one.knobs == KNOBS
    assert "nothing is measured: s has used its --budget 6 trials" in capsys.readouterr().err
    counts = Counter(keys(tmp_path / "slotune.db"))
    assert max(counts.values()) == 1
    assert sum(key[0] == "baseline" for key in counts) == 2


def test_two_without_a_name_do_not_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names are the second they began in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(optimize_request, "study_name", lambda command: "same-second")
    with open_database(tmp_path / "slotune.db") as database:
        database.create_study("same-second")
    with FakeEngine(knobs=dict(KNOBS)) as server:
        assert main(["optimize", *FAST, "--url", server.url]) == 2
    assert "a study named 'same-second' exists" in capsys.readouterr().err


def test_workers_that_begin_at_once_make_one_study(tmp_path: Path, database_url: str) -> None:
    words = [
        "optimize",
        "--study",
        "s",
        "--database",
        database_url,
        "--json",
        *FAST,
        "--duration",
        "1s",
        "--budget",
        "7 trials",
        "--url",
    ]
    with FakeEngine(knobs=dict(KNOBS)) as one, FakeEngine(knobs=dict(KNOBS)) as other:
        both = [start(*words, server.url, cwd=tmp_path) for server in (one, other)]
        for process in both:
            _, err = process.communicate(timeout=120)
            assert process.returncode in (0, 1), err
    counts = Counter(keys(database_url))
    assert max(counts.values()) == 1
    assert sum(key[0] == "baseline" for key in counts) == 2
    assert len(counts) <= 7


def test_a_killed_workers_work_is_done_by_the_other(tmp_path: Path, database_url: str) -> None:
    words = ["optimize", "--study", "s", "--database", database_url, "--json"]
    with FakeEngine(knobs=dict(KNOBS)) as one, FakeEngine(knobs=dict(KNOBS)) as other:
        first = start(*words, *FAST, "--budget", "12 trials", "--url", one.url, cwd=tmp_path)
        stop_when(first, lambda: len(stored(database_url, "s")) >= 4, signal.SIGKILL)
        done = tuner(*words, "--sampler", "tpe", "--url", other.url, cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert other.knobs == KNOBS
    counts = Counter(keys(database_url))
    assert max(counts.values()) == 1
    assert sum(key[0] == "baseline" for key in counts) == 2
    assert "confirm" in stored(database_url, "s")
    assert all(".turn." in path.name for path in tmp_path.glob(".*.lock"))
