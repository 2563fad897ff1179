"""A real `vllm serve`: started, reset, measured, refused, and gone when its tuner is killed.

    VLLM_BINARY=…/vllm VLLM_MODEL=FOLDER python -m pytest tests/tuner/targets/test_real_vllm.py

On a CPU a start takes minutes, so both variables must be set; without them it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tuner.measure import measure
from tuner.search.trial import Lab, run_trial
from tuner.slo import parse_slos
from tuner.targets import Target, TargetError, TargetOptions, http, open_target
from tuner.targets.process import MARK
from tuner.workload import parse_workload

BINARY, MODEL = os.environ.get("VLLM_BINARY", ""), os.environ.get("VLLM_MODEL", "")
START_S = 900.0

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not (BINARY and MODEL), reason="VLLM_BINARY and VLLM_MODEL are not set"),
]


def opened(folder: Path) -> Target:
    return open_target(TargetOptions(
        kind="vllm", model=MODEL, vllm_binary=BINARY, log_dir=folder, startup_timeout_s=START_S,
        serve_args=("--max-model-len", "1024"), knobs=("enforce_eager", "--stream-interval"),
    ))  # fmt: skip


def marked() -> set[int]:
    """Processes of this user that some tuner has started and that still run."""
    found = set()
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


def test_several_loads_on_one_start(tmp_path: Path) -> None:
    before = marked()
    target = opened(tmp_path)
    loads = [parse_workload(text) for text in (
        "prompt=32,output=4,concurrency=2", "prompt=32,output=4,rate=2",
    )]  # fmt: skip
    lab = Lab(target, loads[0], parse_slos(["ttft_p95<10s"]), measure, 6.0, 1.0)
    config = {"max_num_seqs": 4, "chunk_size": 256, "enforce_eager": True, "--stream-interval": 1}
    try:
        outcomes = [
            run_trial(lab, dict(config), stage="sweep", seed=0, workload=load) for load in loads
        ]
        assert [outcome.state for outcome in outcomes] == ["ok", "ok"]
        assert len(list(tmp_path.iterdir())) == 1  # one start, one log
        told = target.describe()
        assert told["version"]
        assert told["kv_cache_tokens"] > 1024
        assert (
            http.call(target.endpoint.base_url + "/reset_prefix_cache", method="POST") is not None
        )
    finally:
        target.stop()
    assert marked() <= before


def test_a_configuration_vllm_refuses(tmp_path: Path) -> None:
    target = opened(tmp_path)
    with pytest.raises(TargetError, match="max_num_batched_tokens") as caught:
        target.apply({"max_num_seqs": 1024, "chunk_size": 64})
    assert caught.value.kind == "configuration"


def test_a_killed_tuner_leaves_no_vllm(tmp_path: Path) -> None:
    before = marked()
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tuner.targets import TargetOptions, open_target\n"
        "target = open_target(TargetOptions(kind='vllm', model=sys.argv[2],\n"
        "    vllm_binary=sys.argv[1], log_dir=Path(sys.argv[3]), startup_timeout_s=900.0,\n"
        "    serve_args=('--max-model-len', '1024')))\n"
        "target.apply({})\nprint('up', flush=True)\ntime.sleep(900)\n"
    )
    command = [sys.executable, "-c", code, BINARY, MODEL, str(tmp_path)]
    tuner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    assert tuner.stdout.readline() == "up\n"
    servers = [psutil.Process(pid) for pid in marked() - before]
    assert servers
    tuner.kill()
    tuner.wait()
    gone, alive = psutil.wait_procs(servers, timeout=120)
    assert not alive, f"{len(gone)} are gone"
