"""`vllm serve` as a target, a script in the executable's place: one start per configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.fake_engine import RESET, program
from tuner.errors import UserError
from tuner.measure import Measurement
from tuner.search.space import parse_axis
from tuner.search.trial import Lab, Outcome, run_trial
from tuner.slo import SloSet
from tuner.targets import TargetError
from tuner.targets.restart import Start
from tuner.targets.vllm import VllmTarget
from tuner.workload import parse_workload


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return program(tmp_path / "vllm", "vllm")


@pytest.fixture
def target(binary: Path, tmp_path: Path) -> Iterator[VllmTarget]:
    made = VllmTarget(Start(
        (str(binary),), "model-folder", log_dir=tmp_path / "logs",
        serve_args=("--max-num-seqs", "16", "--max-model-len=2048"), startup_timeout_s=30,
    ))  # fmt: skip
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


def test_memory_that_is_not_released_is_no_fault_of_the_next_configuration(
    target: VllmTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.apply({"max_num_seqs": 8})
    with monkeypatch.context() as patched:
        patched.setattr("tuner.targets.process.wait_released", lambda before: False)
        with pytest.raises(TargetError, match="memory of the ended server") as caught:
            target.apply({"max_num_seqs": 4})
        assert caught.value.kind == "transient"
        assert len(starts(tmp_path)) == 1
    target.apply({"max_num_seqs": 4})
    assert len(starts(tmp_path)) == 2


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
        VllmTarget(Start((str(binary),), "m", serve_args=flags))


def test_a_configuration_that_does_not_start(binary: Path, tmp_path: Path) -> None:
    target = VllmTarget(Start(
        (str(binary),), "m", log_dir=tmp_path, startup_timeout_s=30,
        serve_args=("--refuse", "ValueError: No available memory for the cache blocks"),
    ))  # fmt: skip
    with pytest.raises(TargetError, match="No available memory") as caught:
        target.apply({})
    assert caught.value.kind == "configuration"
    assert "cache blocks" in target.log_tail()


def test_further_knobs_and_flags_of_vllms_own(binary: Path, tmp_path: Path) -> None:
    target = VllmTarget(Start(
        (str(binary),), "m", log_dir=tmp_path / "logs", startup_timeout_s=30,
        serve_args=("--kv-cache-dtype=fp8", "--no-enable-prefix-caching", "--seed", "3"),
        knobs=("kv_cache_dtype", "enable_prefix_caching", "max_model_len", "--stream-interval"),
    ))  # fmt: skip
    try:
        knobs = target.knobs()
        assert knobs["kv_cache_dtype"].value == "fp8"
        assert knobs["enable_prefix_caching"].value is False
        assert knobs["max_model_len"].value == "auto"
        assert knobs["--stream-interval"].value == "default"
        assert knobs["--stream-interval"].anything
        target.apply({})
        baseline = {name: knob.value for name, knob in knobs.items()}
        target.apply(baseline)
        target.apply(baseline | {"enable_prefix_caching": True, "--stream-interval": 4})
        first, second = starts(tmp_path)
        assert first.endswith("--kv-cache-dtype fp8 --no-enable-prefix-caching --seed 3")
        assert second.endswith(
            "--kv-cache-dtype fp8 --enable-prefix-caching --stream-interval 4 --seed 3"
        )
        assert target.knobs()["chunk_size"].cost_s > 0
    finally:
        target.stop()


def test_the_prefix_cache_is_reset(target: VllmTarget) -> None:
    """vLLM has the route in its development mode only, which the tuner switches on."""
    target.apply({})
    assert RESET not in target.log_tail()
    target.reset_prefix_cache()
    target.reset_prefix_cache()
    assert target.log_tail().count(RESET) == 2


def test_who_says_otherwise_keeps_vllms_development_mode_off(
    target: VllmTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "0")
    target.apply({})
    target.reset_prefix_cache()
    assert RESET not in target.log_tail()


def tried(target: VllmTarget) -> Outcome:
    """A trial of the search that must end before its load."""

    def measure(*words: object, **named: object) -> Measurement:
        raise AssertionError("a load was sent to a server that has no memory for its peak")

    load = parse_workload("prompt=8,output=4,concurrency=2")
    lab = Lab(target, load, SloSet(), measure, 60.0, 0.0)
    try:
        return run_trial(lab, {"gpu_memory_utilization": 0.95}, stage="search", seed=0)
    finally:
        target.stop()


def test_no_memory_at_the_peak_is_learned_within_seconds(binary: Path, tmp_path: Path) -> None:
    """The server starts fine, dies under load, and says why long before its last line."""
    outcome = tried(VllmTarget(Start(
        (str(binary),), "m", log_dir=tmp_path / "logs", startup_timeout_s=30,
        serve_args=("--oom-under-load",),
    )))  # fmt: skip
    assert (outcome.state, outcome.failure_kind) == ("failed", "configuration")
    assert "out of memory" in outcome.failure_reason
    assert outcome.spent_s < 30
    assert len(starts(tmp_path)) == 1  # learned at once, not tried again


def test_a_peak_that_is_refused_for_want_of_memory_is_learned(binary: Path, tmp_path: Path) -> None:
    """The server lives on, and answers a single request."""
    outcome = tried(VllmTarget(Start(
        (str(binary),), "m", log_dir=tmp_path / "logs", startup_timeout_s=30,
        serve_args=("--max-num-seqs", "16", "--fail-above", "8"),
    )))  # fmt: skip
    assert (outcome.state, outcome.failure_kind) == ("failed", "configuration")
    assert outcome.failure_reason == (
        "at its peak the server fails: 16 of 16 requests at once failed: HTTP 500: "
        "CUDA out of memory"
    )
    assert len(starts(tmp_path)) == 1
