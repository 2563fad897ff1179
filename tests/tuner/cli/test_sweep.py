"""`tuner sweep` as a process against a fake engine."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import start, stop_when, stored, tuner
from tests.tuner.fake_engine import FakeEngine
from tuner.cli.main import main

FAST = ["--workload", "prompt=16,output=4,concurrency=8", "--duration", "500ms", "--warmup", "0s"]
ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}


def test_a_table_per_value_and_what_the_knob_trades(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        done = tuner(
            "sweep", "--url", server.url, "--knob", "chunk_size=32,512,2048", *FAST,
            "--slo", "tpot_p95<25ms", cwd=tmp_path,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
        assert all(change["max_num_seqs"] == 16 for change in server.applied)
    assert done.returncode in (0, 1), done.stderr
    for expected in ("chunk_size trades: larger steps", "\n  32 ", "\n  512 ", "\n  2048 ", "n="):
        assert expected in done.stdout
    assert "load prompt=16,output=4,concurrency=8 · seed 0 · each measurement 0.5 s" in done.stdout
    listed = json.loads(tuner("studies", "--json", cwd=tmp_path).stdout)
    assert [study["state"] for study in listed] == ["done"]
    assert stored(tmp_path / "slotune.db", listed[0]["name"]) == ["sweep"] * 3


def test_a_full_disk_under_the_log_ends_no_study(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server, Path("/dev/full").open("w") as full:
        process = start(
            "sweep", "--url", server.url, "--study", "s", "--knob", "chunk_size=32,512", *FAST,
            cwd=tmp_path, stderr=full.fileno(),
        )  # fmt: skip
        process.communicate(timeout=60)
        assert server.knobs == ORIGINAL
    assert process.returncode == 0
    assert stored(tmp_path / "slotune.db", "s") == ["sweep"] * 2


def test_ctrl_c_says_what_is_kept_and_restores_the_server(tmp_path: Path) -> None:
    database = tmp_path / "slotune.db"

    def measured() -> int:
        if not database.exists():
            return 0
        try:
            with open_database(database, read_only=True) as opened:
                return len(opened.list_measurements())
        except Exception:  # the schema is being made
            return 0

    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        process = start(
            "sweep", "--url", server.url, "--knob", "chunk_size=32,512,2048", "--repeat", "9",
            *FAST, cwd=tmp_path,
        )  # fmt: skip
        _, err = stop_when(process, lambda: measured() >= 2, signal.SIGINT)
        assert server.knobs == ORIGINAL
    assert process.returncode == 130, err
    assert f"kept: {measured()} measurements of 27, in study sweep-" in err


def test_json_and_repetitions_over_a_range(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        done = tuner(
            "sweep", "--url", server.url, "--knob", "chunk_size=16..64", "--points", "2",
            "--repeat", "2", "--json", *FAST, cwd=tmp_path,
        )  # fmt: skip
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert [point["value"] for point in result["points"]] == [16, 64]
    assert [point["runs"] for point in result["points"]] == [2, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--knob", "chunk_size=64", "--constraint", "chunk_size > 64"], "leaves no combination"),
        (["--knob", "chunk_size=64,128", "--constraint", "chunk_size > 64"], "=64: --constraint"),
        (["--knob", "block_size=16,32"], "--knob block_size is set when a server starts"),
        (["--knob", "concurrency=2,4", "--workload", "chat,rate=2"], "is open (rate=…)"),
        (["--knob", "concurrency=1.5"], "1.5 is no number of clients"),
        (["--knob", "max_num_seqs=4096"], "outside 1 to 256"),
        (["--knob", "chunk_size=8,64"], "chunk_size (8) must be at least max_num_seqs (16)"),
        (["--knob", "chunk_sise=64"], "did you mean chunk_size?"),
        (["--knob", "chunk_size=64", "--repeat", "0"], "--repeat must be at least 1"),
        (["--knob", "chunk_size=64:128", "--points", "1"], "--points must be at least 2"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: list[str], says: str) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        done = tuner("sweep", "--url", server.url, *words, cwd=tmp_path)
        assert server.requests == []
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sweep_is_gone_on_with(tmp_path: Path) -> None:
    database = tmp_path / "slotune.db"
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        words = ["sweep", "--url", server.url, "--study", "s"]
        begun = [*words, "--knob", "chunk_size=32,512,2048", "--repeat", "2", *FAST]
        process = start(*begun, cwd=tmp_path)
        process_out = stop_when(process, lambda: len(stored(database, "s")) >= 2, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, process_out
        before = len(stored(database, "s"))
        done = tuner(*begun, "--json", cwd=tmp_path)
        assert server.knobs == ORIGINAL
        again = tuner(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(again.stdout) == json.loads(done.stdout)
    assert [p["runs"] for p in json.loads(done.stdout)["points"]] == [2, 2, 2]
    assert 2 <= before < 6
    assert len(stored(database, "s")) == 6


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--knob", "chunk_size=64"], "--knob: study 's' was begun with chunk_size=512,2048"),
        (["--workload", "chat"], "begun with prompt=16,output=4,concurrency=8"),
        (["--constraint", "chunk_size > 64"], "--constraint: study 's' was begun with none"),
        (["--points", "7"], "--points: study 's' was begun with 5"),
        (["--duration", "2s"], "--duration: study 's' was begun with 0.5 s"),
        (["--warmup", "1s"], "--warmup: study 's' was begun with 0 s"),
        (["--quality", "tasks.jsonl"], "--quality: study 's' was begun with none"),
    ],
)
def test_a_sweep_is_not_gone_on_with_as_another(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = {"question": "Bees?", "choices": ["Milk", "Honey"], "answer": 1}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    words = [str(tmp_path / word) if word.endswith(".jsonl") else word for word in words]
    common = ["sweep", "--study", "s", "--database", str(tmp_path / "x.db"), "--url"]
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        assert main([*common, server.url, "--knob", "chunk_size=512,2048", *FAST]) == 0
        asked = len(server.requests)
        assert main([*common, server.url, *words]) == 2
        assert len(server.requests) == asked
    said = capsys.readouterr().err.splitlines()[-1]
    assert says in said
    assert said.endswith("; leave it out to go on, or give another --study")


def test_several_knobs_and_several_loads(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        done = tuner(
            "sweep", "--url", server.url, "--knob", "chunk_size=32,2048",
            "--knob", "max_num_seqs=8,16", "--json", *FAST,
            "--workload", "prompt=8,output=4,rate=20", cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [(one["knob"], one["workload"][:8]) for one in result["sweeps"]] == [
        ("max_num_seqs", "prompt=1"), ("max_num_seqs", "prompt=8"),
        ("chunk_size", "prompt=1"), ("chunk_size", "prompt=8"),
    ]  # fmt: skip
    # The baseline is a value of both knobs: it is measured once for each load.
    assert len(stored(tmp_path / "slotune.db", result["study"])) == 6


def test_the_load_is_varied_against_any_server(tmp_path: Path) -> None:
    with FakeEngine(kind="other") as server:
        done = tuner("sweep", "--url", server.url, "--knob", "concurrency=1,4", *FAST, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        refused = tuner("sweep", "--url", server.url, "--knob", "chunk_size=64,128", cwd=tmp_path)
    assert "concurrency trades: more clients at once" in done.stdout
    assert "  output_tps\n" in done.stdout
    assert "█" in done.stdout
    assert refused.returncode == 2
    assert "the tuner cannot change chunk_size of" in refused.stderr
    assert "vary the load (--knob concurrency=" in refused.stderr


def test_without_a_knob_the_baseline_is_diagnosed(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        done = tuner(
            "sweep", "--url", server.url, "--points", "2", *FAST, "--study", "s", cwd=tmp_path
        )
        assert server.knobs == ORIGINAL
    assert done.returncode == 0, done.stderr
    assert "diagnosis of the baseline:" in done.stderr
    assert "sweeping the usual ones: max_num_seqs, chunk_size" in done.stderr
    assert "max_num_seqs trades" in done.stdout
    assert stored(tmp_path / "slotune.db", "s").count("baseline") == 1


def test_a_server_that_cannot_be_changed_is_diagnosed_all_the_same(tmp_path: Path) -> None:
    with FakeEngine(kind="other") as server:
        done = tuner("sweep", "--url", server.url, *FAST, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "diagnosis of the baseline:" in done.stderr
    assert "no knob of this server can be turned from here" in done.stdout


def test_a_second_one_of_a_study_is_refused_while_the_first_is_alive(tmp_path: Path) -> None:
    words = ["sweep", "--study", "m", "--knob", "concurrency=1,2", *FAST[2:]]
    words += ["--workload", "prompt=16,output=4,concurrency=1"]
    database = tmp_path / "slotune.db"
    with FakeEngine(knobs=dict(ORIGINAL)) as server, FakeEngine(knobs=dict(ORIGINAL)) as other:
        first = start(*words, "--repeat", "40", "--url", server.url, cwd=tmp_path)
        while not stored(database, "m"):
            assert first.poll() is None
        second = tuner(*words, "--url", other.url, cwd=tmp_path)
        assert second.returncode == 2
        assert "another tuner sweep is measuring study 'm'" in second.stderr
        stop_when(first, lambda: len(stored(database, "m")) >= 3, signal.SIGKILL)
        kept = len(stored(database, "m"))
        third = tuner(*words, "--repeat", str(kept // 2 + 1), "--url", server.url, cwd=tmp_path)
    assert third.returncode == 0, third.stderr
    with open_database(database, read_only=True) as opened:
        rows = opened.list_measurements()
    parts = {(row.seed, str((row.workload or {})["text"])) for row in rows}
    assert len(rows) == len(parts) == 2 * (kept // 2 + 1)
    assert not [path for path in tmp_path.glob(".*.lock") if not path.name.endswith("turn.lock")]
