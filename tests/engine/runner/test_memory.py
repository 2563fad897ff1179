"""How much becomes KV cache, and what is said when it is too little."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.runner import ModelRunner
from engine.runner.memory import blocks_within, measure_peak_bytes
from tests.engine.tiny_models import save_folder, tiny_model

MIB = 2**20
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tiny_model("llama"), tmp_path_factory.mktemp("model"))


def runner(folder: Path, **changes: Any) -> ModelRunner:
    settings: dict[str, Any] = {
        "model": str(folder), "dtype": "float32", "max_num_seqs": 2, "max_num_seqs_limit": 2,
        "chunk_size": 64, "chunk_size_limit": 64, "device_memory_bytes": 64 * MIB,
        "gpu_memory_utilization": 0.5, "gpu_memory_utilization_limit": 0.8,
    }  # fmt: skip
    return ModelRunner(EngineConfig(**{**settings, **changes}).checked())


def test_the_pool_is_what_weights_and_activations_leave(folder: Path) -> None:
    made = runner(folder)
    plan = made.memory
    assert plan.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4  # layers · K and V · heads · dim · bytes
    left = 0.8 * plan.device_memory_bytes - plan.weights_bytes - plan.activation_bytes
    assert plan.num_kv_blocks == int(left) // (16 * plan.kv_bytes_per_token)
    assert plan.kv_cache_bytes == plan.num_kv_blocks * 16 * plan.kv_bytes_per_token
    allocated = sum(cache.nbytes for cache in made._caches)
    assert allocated == plan.kv_cache_bytes


def test_a_lower_share_gives_fewer_blocks_and_never_more_than_exist(folder: Path) -> None:
    made = runner(folder)
    at = [made.num_kv_blocks_at(share) for share in (0.01, 0.3, 0.5, 0.8, 1.0)]
    assert at[0] == 0
    assert at == sorted(at)
    assert at[2] < at[3] == at[4] == made.memory.num_kv_blocks


def test_a_given_number_of_blocks_is_taken_as_it_is(folder: Path) -> None:
    made = runner(folder, num_kv_blocks=7)
    assert made.memory.num_kv_blocks == made.num_kv_blocks_at(0.5) == 7


def test_weights_count_with_their_reordered_copy_of_a_tied_head(folder: Path) -> None:
    made = runner(folder)
    expected = 4 * made.model.num_parameters
    if torch.backends.mkldnn.is_available():
        expected += 4 * 200 * 64
    assert made.memory.weights_bytes == expected


def test_too_little_memory_is_told(folder: Path) -> None:
    with pytest.raises(EngineConfigError, match="memory is left for 0 tokens") as caught:
        runner(folder, device_memory_bytes=MIB // 4)
    for flag in ("--gpu-memory-utilization", "--device-memory", "--max-model-len"):
        assert flag in str(caught.value)


def test_a_sequence_of_max_model_len_must_fit(folder: Path) -> None:
    """A pool far too small for the context is refused; the same pool on request is not."""
    made = runner(folder)
    share = made.memory.weights_bytes + made.memory.activation_bytes + 2 * MIB
    with pytest.raises(EngineConfigError, match="--max-model-len needs 500000"):
        runner(folder, device_memory_bytes=2 * share, max_model_len=500_000)
    assert runner(folder, num_kv_blocks=1).memory.num_kv_blocks == 1


def test_blocks_within() -> None:
    assert blocks_within(0.5, 1000, 100, 100) == 4
    assert blocks_within(0.5, 1000, 500, 100) == 0
    assert blocks_within(0.5, 1000, 900, 100) == 0


def test_the_peak_is_measured_not_the_end() -> None:
    """Memory that was freed again counts; what was held before does not."""
    before = torch.ones(64 * MIB // 4)

    def work() -> None:
        del_me = torch.ones(96 * MIB // 4)
        del del_me

    peak = measure_peak_bytes(CPU, work)
    assert 90 * MIB < peak < 140 * MIB
    assert before.numel()


def test_what_was_freed_before_is_no_activation() -> None:
    """The allocator keeps freed memory: handed back just before, it is not in the peak."""
    freed = [bytes(60_000) for _ in range(2000)]  # 114 MiB in pieces that stay in the heap
    pin = bytes(60_000)
    del freed
    assert measure_peak_bytes(CPU, lambda: None) < 32 * MIB
    assert pin


def test_pages_of_files_are_no_activations(tmp_path: Path) -> None:
    """Such as those of a library that is used for the first time, or again after a reclaim."""
    path = tmp_path / "library"
    path.write_bytes(b"x" * (96 * MIB))

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        peak = measure_peak_bytes(CPU, lambda: mapped.find(b"y") and None)
    assert peak < 32 * MIB


def test_activations_grow_with_the_largest_step(folder: Path) -> None:
    small, large = (
        runner(folder, chunk_size=n, chunk_size_limit=n, device_memory_bytes=2048 * MIB)
        for n in (64, 16384)
    )
    rows = 16384 * 96 * 4  # one buffer of the MLP
    assert large.memory.activation_bytes > small.memory.activation_bytes + rows
