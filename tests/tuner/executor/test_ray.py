"""`tuner optimize --executor ray` on a real Ray cluster of this machine, with two GPUs by name.

The servers are fake vLLMs that write down which GPU they were given.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from storage import open_database
from tests.tuner.cli.running import ROOT, start, stop_when, stored, tuner
from tests.tuner.fake_engine import program
from tuner.cli.ray_worker import MODULE

RAY = Path(sys.prefix) / "ray"
BUDGET = 7
GONE_S = 30.0

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (RAY / "ray").is_dir(), reason="Ray is not installed: run make ray"),
]

WITH_RAY = {
    "PYTHONPATH": f"{ROOT}:{RAY}",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
CLUSTER = """
import sys, ray
made = ray.init(
    address="local", num_cpus=2, num_gpus=2, include_dashboard=False,
    object_store_memory=100 * 1024**2, log_to_driver=False,
)
print("at", made.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""
WORDS = [
    "optimize", "--study", "s", "--executor", "ray", "--workers", "2", "--cpus-per-worker", "0.5",
    "--target", "vllm", "--model", "m", "--workload", "prompt=16,output=4,concurrency=8",
    "--duration", "500ms", "--warmup", "100ms", "--sampler", "tpe", "--slo", "tpot_p95<25ms",
    "--knob", "chunk_size=64:2048", "--knob", "max_num_seqs=8,16",
    "--serve-args=--gpu-memory-utilization 0.9",
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Its address, HOST:PORT."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], env=os.environ | WITH_RAY, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith("at ")), "")
    yield line.split()[1]
    process.communicate("", timeout=60)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """What is called; the server's GPU goes to the file `devices`."""
    fake, script = program(tmp_path / "fake", "vllm"), tmp_path / "vllm"
    script.write_text(
        f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" >> {tmp_path}/devices\nexec {fake} "$@"\n'
    )
    script.chmod(0o755)
    return [*WORDS, "--vllm-binary", str(script)]


def left(tmp_path: Path) -> list[psutil.Process]:
    """Workers and servers of this test that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            told = " ".join(process.cmdline())
            ours = MODULE in told and process.cwd() == str(tmp_path)
        except psutil.Error:
            continue
        if ours or f"--record {tmp_path}" in told:
            found.append(process)
    return found


def workers(tmp_path: Path) -> list[psutil.Process]:
    return [process for process in left(tmp_path) if MODULE in process.cmdline()]


def nothing_left(tmp_path: Path) -> bool:
    deadline_s = time.monotonic() + GONE_S
    while left(tmp_path):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.2)
    return True


def trials_by_worker(err: str) -> Counter[str]:
    """Worker → trials that it told to have measured."""
    return Counter(
        re.findall(r"^\[(worker \d)\] +\d+ (?:baseline|sweep|search|confirm)", err, re.M)
    )


def check_measured_once(database: Path) -> None:
    """Two baselines, no trial twice, the budget kept."""
    with open_database(database, read_only=True) as opened:
        study = opened.get_study("s")
        assert study is not None
        rows = opened.list_measurements(study_id=study.id)
    keys = Counter((row.stage, row.seed, json.dumps(row.config, sort_keys=True)) for row in rows)
    assert max(keys.values()) == 1
    assert sum(row.stage == "baseline" for row in rows) == 2
    assert 5 <= len(rows) <= BUDGET


def state(database: Path) -> str:
    with open_database(database, read_only=True) as opened:
        study = opened.get_study("s")
        assert study is not None
        return study.state


def test_two_workers_that_start_at_once_measure_one_study(
    cluster: str, tmp_path: Path, words: list[str]
) -> None:
    done = tuner(
        *words, "--ray-address", cluster, "--budget", f"{BUDGET} trials", "--json",
        cwd=tmp_path, also=WITH_RAY,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["study"] == "s"
    assert set(trials_by_worker(done.stderr)) == {"worker 1", "worker 2"}
    assert trials_by_worker(done.stderr).total() <= BUDGET
    check_measured_once(tmp_path / "slotune.db")
    assert state(tmp_path / "slotune.db") == "done"
    assert set((tmp_path / "devices").read_text().split()) == {"0", "1"}
    for number in (1, 2):
        assert list((tmp_path / ".slotune" / "logs" / f"worker-{number}").glob("vllm-*.log"))
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        assert study.command is not None
        assert study.command.startswith("tuner optimize --study s --executor ray")
    assert left(tmp_path) == []


def test_a_killed_worker_is_told_and_the_study_ends_well(
    cluster: str, tmp_path: Path, words: list[str]
) -> None:
    database = tmp_path / "slotune.db"
    process = start(
        *words, "--ray-address", cluster, "--budget", f"{BUDGET} trials", cwd=tmp_path,
        also=WITH_RAY,
    )  # fmt: skip
    deadline_s = time.monotonic() + 90
    while len(stored(database, "s")) < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    workers(tmp_path)[0].kill()
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 1), err
    assert re.search(
        r"\[worker \d\] died: killed by SIGKILL; the study goes on with 1 worker$", err, re.M
    )
    assert out.count("study s: ") == 1
    assert f"--executor ray --ray-address {cluster} --workers 2" in out  # how to go on
    check_measured_once(database)
    assert state(database) == "done"
    assert nothing_left(tmp_path)


def test_ctrl_c_ends_all_of_it_and_the_same_command_goes_on(
    cluster: str, tmp_path: Path, words: list[str]
) -> None:
    database = tmp_path / "slotune.db"
    slow = ["3s" if word == "500ms" else word for word in words]  # else it ends before the signal
    command = [*slow, "--ray-address", cluster, "--budget", f"{BUDGET} trials"]
    process = start(*command, cwd=tmp_path, also=WITH_RAY)
    out, err = stop_when(process, lambda: len(stored(database, "s")) >= 3, signal.SIGINT)
    assert process.returncode == 130, err
    assert len(stored(database, "s")) < BUDGET, err
    assert left(tmp_path) == []
    assert out == ""
    assert (
        len(re.findall(r"kept: \d+ measurements; go on with: tuner optimize --study s", err)) == 1
    )
    assert "Traceback" not in err
    assert state(database) == "stopped"
    done = tuner(*command, cwd=tmp_path, also=WITH_RAY)
    assert done.returncode in (0, 1), done.stderr
    check_measured_once(database)
    assert state(database) == "done"


def test_kill_9_leaves_nothing_running(tmp_path: Path, words: list[str]) -> None:
    """Of a local cluster, which ends as well."""
    database = tmp_path / "slotune.db"
    process = start(
        *words, "--ray-address", "local", "--gpus-per-worker", "0", "--budget", f"{BUDGET} trials",
        cwd=tmp_path, also=WITH_RAY,
    )  # fmt: skip
    stop_when(process, lambda: len(stored(database, "s")) >= 1, signal.SIGKILL)
    assert nothing_left(tmp_path)


def test_more_workers_than_the_cluster_has_places_for(
    cluster: str, tmp_path: Path, words: list[str]
) -> None:
    done = tuner(*words, "--ray-address", cluster, "--workers", "3", cwd=tmp_path, also=WITH_RAY)
    assert done.returncode == 2, done.stderr
    assert "--workers 3: the Ray cluster has places for 2 with 1 GPU" in done.stderr
    assert done.stdout == ""


def test_what_fails_on_every_worker_is_said_once(
    cluster: str, tmp_path: Path, words: list[str]
) -> None:
    done = tuner(
        *words, "--ray-address", cluster, "--vllm-binary", "/no/such/vllm", cwd=tmp_path,
        also=WITH_RAY,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "no worker of study s came to its end" in done.stderr
    assert "'/no/such/vllm' is not an executable" in done.stderr
    assert "Traceback" not in done.stderr
