"""`vllm serve` as a target, a script in the executable's place: one start per configuration."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.search.space import parse_axis
from tuner.targets import TargetError
from tuner.targets.vllm import VllmTarget

ROOT = Path(__file__).parents[3]


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    script = tmp_path / "vllm"
    script.write_text(
        f"#!/bin/sh\ncd {ROOT}\n"
        f"exec {sys.executable} -m tests.tuner.fake_engine --kind vllm "
        f'--record {tmp_path / "starts"} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


@pytest.fixture
def target(binary: Path, tmp_path: Path) -> Iterator[VllmTarget]:
    made = VllmTarget(
        str(binary), "model-folder", log_dir=tmp_path / "logs",
        serve_args=("--max-num-seqs", "16", "--max-model-len=2048"), startup_timeout_s=30,
    )  # fmt: skip
    yield made
    made.stop()


def starts(tmp_path: Path) -> list[str]:
    return (tmp_path / "starts").read_text().splitlines()


def test_restarts_for_another_configuration_only(target: VllmTarget, tmp_path: Path) -> None:
    target.start()
    baseline = {name: knob.value for name, knob in target.knobs().items()}
    assert baseline["max_num_seqs"] == 16
    target.apply(baseline)
    assert len(starts(tmp_path)) == 1
    target.apply(baseline | {"chunk_size": 512})
    first, second = starts(tmp_path)
    assert "serve model-folder --host 127.0.0.1" in first
    assert "--max-num-seqs 16 " in first
    assert first.endswith("--max-model-len=2048")
    assert "--max-num-batched-tokens 512" in second
    assert target.endpoint.model == "fake-model"
    assert target.describe()["version"] == "0.0-fake"
    assert not any(knob.live for knob in target.knobs().values())
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "vllm-001.log", "vllm-002.log",
    ]  # fmt: skip


def test_a_restart_allows_values_outside_the_default_search(target: VllmTarget) -> None:
    axis = parse_axis("max_num_seqs=1,2,512", target.knobs())
    assert axis.values == (1, 2, 512)
    with pytest.raises(UserError, match="0 is outside 1 to"):
        parse_axis("max_num_seqs=0,2", target.knobs())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--max-num-seqs", "many"), "--max-num-seqs takes a whole number, got 'many'"),
        (("--max-num-seqs",), "--max-num-seqs takes a whole number, got ''"),
        (("--gpu-memory-utilization=high",), "--gpu-memory-utilization takes a number"),
    ],
)
def test_a_flag_without_a_number_is_told_in_one_sentence(
    binary: Path, flags: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        VllmTarget(str(binary), "m", serve_args=flags)


def test_a_configuration_that_does_not_start(binary: Path, tmp_path: Path) -> None:
    target = VllmTarget(
        str(binary), "m", log_dir=tmp_path, startup_timeout_s=30,
        serve_args=("--refuse", "ValueError: No available memory for the cache blocks"),
    )  # fmt: skip
    with pytest.raises(TargetError, match="No available memory") as caught:
        target.apply({})
    assert caught.value.kind == "configuration"
    assert "cache blocks" in target.log_tail()
