"""`tuner optimize` as a process against a fake engine: the answer, and every way to end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import start, stop_when, stored, tuner
from tests.tuner.fake_engine import FakeEngine

pytestmark = pytest.mark.timeout(300)

FAST = [
    "--workload", "prompt=16,output=4,concurrency=8", "--duration", "600ms", "--warmup", "100ms",
    "--sampler", "tpe", "--slo", "tpot_p95<25ms", "--knob", "chunk_size=16:2048",
    "--knob", "max_num_seqs=8,16",
]  # fmt: skip
ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}


def engine() -> FakeEngine:
    return FakeEngine(knobs=dict(ORIGINAL))


def test_finds_a_configuration_stores_it_and_restores_the_server(tmp_path: Path) -> None:
    with engine() as server:
        done = tuner(
            "optimize", "--url", server.url, *FAST, "--budget", "9 trials", "--study", "s",
            "--json", cwd=tmp_path,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    assert result["baseline"]["config"] == ORIGINAL
    assert result["baseline"]["verdict"]["state"] == "fail"
    assert result["answer"] in ("improved", "undecided")
    assert result["best"]["config"]["chunk_size"] < 2048
    assert result["best"]["figures"]["tpot_p95"]["value"] < 0.025
    assert f"--chunk-size {result['best']['config']['chunk_size']}" in result["flags"]["slotune"]
    assert "--max-num-batched-tokens" in result["flags"]["vllm serve"]
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        assert study.state == "done"
        assert study.result is not None
        assert study.result["best"]["config"] == result["best"]["config"]
        rows = database.list_measurements(study_id=study.id)
        assert [row.stage for row in rows[:2]] == ["baseline", "baseline"]
        assert len(rows) <= 9
        assert len(database.load_records(rows[0].id)["sent_s"]) > 0


def test_apply_leaves_the_confirmed_best(tmp_path: Path) -> None:
    with engine() as server:
        done = tuner(
            "optimize", "--url", server.url, *FAST, "--budget", "8 trials", "--apply", "--json",
            cwd=tmp_path,
        )  # fmt: skip
        result = json.loads(done.stdout)
        kept = result["best"]["config"] if result["answer"] == "improved" else ORIGINAL
        assert server.knobs == kept


def test_text_report(tmp_path: Path) -> None:
    with engine() as server:
        done = tuner(
            "optimize", "--url", server.url, *FAST, "--budget", "8 trials", "--study", "s",
            cwd=tmp_path,
        )  # fmt: skip
        again = tuner(
            "optimize", "--url", server.url, "--study", "s", "--budget", "5 trials", cwd=tmp_path
        )
    for expected in ("baseline", "tpot_p95", "engine serve --max-num-seqs", "vllm serve MODEL",
                     "go on with: tuner optimize --study s --url", "n="):  # fmt: skip
        assert expected in done.stdout
    assert "load prompt=16,output=4,concurrency=8 · seed 0 · each measurement 0.6 s" in done.stdout
    assert "N counts the whole study" in done.stdout
    assert "nothing is measured" not in done.stderr
    assert "nothing is measured: s has used its --budget 5 trials" in again.stderr
    listed = tuner("studies", cwd=tmp_path)
    assert "done" in listed.stdout
    shown = tuner("studies", "s", cwd=tmp_path)
    assert "baseline" in shown.stdout
    assert "chunk_size=2048" in shown.stdout


def test_a_terminal_shows_the_time_left(tmp_path: Path) -> None:
    ours, its = os.openpty()
    with engine() as server:
        process = start(
            "optimize", "--url", server.url, *FAST, "--budget", "5 trials", "--json",
            cwd=tmp_path, stderr=its,
        )  # fmt: skip
        os.close(its)
        told = b""
        with contextlib.suppress(OSError):  # its end is closed
            while piece := os.read(ours, 4096):
                told += piece
        os.close(ours)
        process.communicate(timeout=60)
    assert process.returncode in (0, 1), told
    left_s = [
        60 * int(minutes) + int(seconds)
        for minutes, seconds in re.findall(r" · about (\d+):(\d\d) left", told.decode())
    ]
    assert 1 < left_s[0] < 60  # five trials of some 2 s, longer on a busy machine
    assert left_s[-1] < left_s[0]


def test_ctrl_c_keeps_what_was_measured_and_restores(tmp_path: Path) -> None:
    database = tmp_path / "slotune.db"
    with engine() as server:
        process = start(
            "optimize", *FAST, "--url", server.url, "--budget", "50 trials", "--study", "s",
            cwd=tmp_path,
        )  # fmt: skip
        _, err = stop_when(process, lambda: len(stored(database, "s")) >= 4, signal.SIGINT)
        assert process.returncode == 130, err
        assert server.knobs == ORIGINAL
    assert re.search(r"kept: \d+ measurements in \d+ s; go on with: tuner optimize --study s", err)
    assert "Traceback" not in err
    with open_database(database, read_only=True) as opened:
        study = opened.get_study("s")
        assert study is not None
        assert study.state == "stopped"


def test_a_changed_slo_judges_the_old_measurements_again(tmp_path: Path) -> None:
    with engine() as server:
        words = ["optimize", "--url", server.url, *FAST, "--budget", "8 trials", "--study", "s"]
        tuner(*words, cwd=tmp_path)
        requests = len(server.requests)
        done = tuner(
            "optimize", "--url", server.url, "--study", "s", "--slo", "tpot_p95<5s", "--json",
            cwd=tmp_path,
        )  # fmt: skip
        assert len(server.requests) == requests
    result = json.loads(done.stdout)
    clause = result["baseline"]["verdict"]["clauses"][0]
    assert clause["clause"] == "tpot_p95<5s"
    assert clause["margin_log"] < 0
    assert result["baseline"]["verdict"]["state"] != "fail"


def test_a_failing_baseline_stops_with_the_reason(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL), fail_above=1) as server:
        done = tuner("optimize", "--url", server.url, *FAST, "--study", "s", cwd=tmp_path)
    assert done.returncode == 2
    assert "the baseline failed: every request failed" in done.stderr
    assert "CUDA out of memory" in done.stderr
    assert stored(tmp_path / "slotune.db", "s") == ["baseline"]


def test_another_workload_needs_another_study(tmp_path: Path) -> None:
    with engine() as server:
        words = ["optimize", "--url", server.url, "--budget", "5 trials", "--study", "s"]
        tuner(*words, *FAST, cwd=tmp_path)
        done = tuner(*words, "--workload", "prompt=99,output=4", cwd=tmp_path)
    assert done.returncode == 2
    assert "another load needs another --study" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--slo", "ttft_p95"], "no operator"),
        (["--slo", "ttft_p95<500"], "unit"),
        (["--knob", "max_num_seq=8"], "did you mean max_num_seqs?"),
        (["--knob", "max_num_seqs=8:999"], "outside 1 to 256"),
        (["--budget", "soon"], "neither a time nor a count"),
        (["--workload", "nonsense"], "not understood"),
        (["--maximize", "speed"], "unknown figure"),
        (["--duration", "5"], "is no duration"),
        (["--database", "/proc/none/x.db"], "/proc/none/x.db"),
        (["--serve-args=--x"], "leave out --url"),
        (["--maximize", "capacity", "--minimize", "ttft_p95"], "alone"),
        (["--maximize", "capacity"], "give one, e.g. --slo"),
        (["--minimize", "cost_per_mtok"], "needs --price-per-hour"),
        (["--price-per-hour", "-1"], "must be more than 0"),
        (["--workload", "chat", "--workload", "chat"], "is given twice"),
        (["--workload", "chat", "--workload", "rag", "--calibrate"], "sizes one load"),
        (["--frobnicate"], "unrecognized arguments"),
        (["--seed", "-1"], "must be between 0 and 2147483647, got -1"),
        (["--seed", "1" + "0" * 20], "must be between 0 and 2147483647"),
        (["--startup-timeout", "0"], "must be a number of seconds above 0, got 0"),
        (["--startup-timeout", "nan"], "must be a number of seconds above 0, got nan"),
    ],
)
def test_bad_input_is_one_sentence_and_sends_nothing(
    tmp_path: Path, words: list[str], says: str
) -> None:
    with engine() as server:
        done = tuner("optimize", "--url", server.url, *words, cwd=tmp_path)
        assert server.requests == []
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_no_server(tmp_path: Path) -> None:
    done = tuner("optimize", "--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing answers at http://127.0.0.1:9" in done.stderr
