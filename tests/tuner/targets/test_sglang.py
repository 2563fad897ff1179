"""SGLang as a target: its flags, its routes, its metrics; a script stands for the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from storage.sources.exposition import parse_exposition
from tests.tuner.fake_engine import SGLANG_METRICS, FakeEngine, program
from tuner.diagnosis.registry import SPECS, dialect_of
from tuner.errors import UserError
from tuner.targets import TargetOptions, open_target
from tuner.targets.sglang import SglangTarget


@pytest.fixture
def command(tmp_path: Path) -> str:
    return f"{program(tmp_path / 'sglang', 'sglang')} launch"


@pytest.fixture
def target(command: str, tmp_path: Path) -> Iterator[SglangTarget]:
    made = open_target(TargetOptions(
        kind="sglang", model="model-folder", sglang_command=command, log_dir=tmp_path / "logs",
        serve_args=("--disable-radix-cache", "--schedule-conservativeness", "0.3"),
        startup_timeout_s=30,
        knobs=("enable_prefix_caching", "block_size", "enforce_eager", "tensor_parallel_size"),
    ))  # fmt: skip
    assert isinstance(made, SglangTarget)
    yield made
    made.stop()


def starts(tmp_path: Path) -> list[str]:
    return (tmp_path / "starts").read_text().splitlines()


def test_flags_carry_sglangs_names(target: SglangTarget, tmp_path: Path) -> None:
    knobs = target.knobs()
    assert knobs["enable_prefix_caching"].value is False
    assert knobs["max_num_seqs"].value == "default"
    target.apply({})
    target.apply({
        "max_num_seqs": 32, "chunk_size": 512, "gpu_memory_utilization": 0.8, "block_size": 16,
        "enable_prefix_caching": True, "enforce_eager": True, "tensor_parallel_size": 2,
    })  # fmt: skip
    first, second = starts(tmp_path)
    assert "launch --model-path model-folder --enable-metrics --host 127.0.0.1" in first
    assert first.endswith("--disable-radix-cache --schedule-conservativeness 0.3")
    assert "--max-running-requests" not in first
    flags = second.partition("--port ")[2].partition(" ")[2]
    assert flags == (
        "--max-running-requests 32 --chunked-prefill-size 512 --mem-fraction-static 0.8 "
        "--page-size 16 --disable-cuda-graph --tp-size 2 --schedule-conservativeness 0.3"
    )


def test_it_tells_what_it_worked_out(target: SglangTarget) -> None:
    target.apply({})
    told = target.describe()
    assert told["version"] == "0.5-fake"
    assert told["max_running_requests"] == 48
    assert told["kv_cache_tokens"] == 5120
    assert target.endpoint.model == "fake-model"


def test_the_cache_is_flushed_although_it_refuses_at_first(target: SglangTarget) -> None:
    with FakeEngine(kind="sglang") as engine:
        target._process = SimpleNamespace(url=engine.url, stop=lambda: None)  # type: ignore[assignment]
        target.reset_prefix_cache()
        assert engine.resets == 2


def test_a_server_by_url_is_read_in_its_own_dialect() -> None:
    names = parse_exposition(SGLANG_METRICS.read_text(), 0.0).names()
    assert dialect_of(names) == "sglang"
    wanted = {"running", "waiting", "kv_usage", "preemptions", "prefix_hits", "ttft", "queue"}
    found = {
        spec.name for spec in SPECS
        if any(name in names or f"{name}_bucket" in names for name in spec.names("sglang"))
    }  # fmt: skip
    assert wanted <= found


def test_what_is_missing_is_told() -> None:
    with pytest.raises(UserError, match="--target sglang needs --model"):
        open_target(TargetOptions(kind="sglang", sglang_command="sh"))
    with pytest.raises(UserError, match="'no-such-python' is not an executable"):
        open_target(TargetOptions(kind="sglang", model="m", sglang_command="no-such-python -m x"))
