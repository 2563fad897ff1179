"""How much memory there is, and how much of it becomes KV cache.

KV bytes = gpu_memory_utilization × device memory − weights − activations. Activations are measured
with the largest step that the start-up limits allow, never guessed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.models.config import ModelConfig
from engine.runner.device import choose

CPU_SHARE_OF_RAM = 0.25
"""Of a CPU machine's RAM, what counts as "device memory" unless --device-memory says more."""

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """All amounts in bytes; num_kv_blocks is what was allocated."""

    device_memory_bytes: int
    weights_bytes: int
    activation_bytes: int
    kv_bytes_per_token: int
    kv_cache_bytes: int
    num_kv_blocks: int


def device_memory_bytes(device: torch.device, wanted_bytes: int | None) -> int:
    """The memory the engine may count on: what the user says, the GPU's, or a share of RAM."""
    if wanted_bytes is not None:
        return wanted_bytes
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(total_ram_bytes() * CPU_SHARE_OF_RAM)


def total_ram_bytes() -> int:
    """RAM of the machine, or of the container where its limit is lower."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
            break
    limit_file = Path("/sys/fs/cgroup/memory.max")
    if limit_file.is_file():
        text = limit_file.read_text().strip()
        if text.isdigit():
            return min(total, int(text))
    return total


def blocks_within(utilization: float, device_bytes: int, taken_bytes: int, block_bytes: int) -> int:
    """KV blocks that fit into the share of memory left by weights and activations."""
    return max(0, int(utilization * device_bytes) - taken_bytes) // block_bytes


def check_largest_step(config: EngineConfig, model: ModelConfig) -> None:
    """Refuse limits whose largest step cannot fit, before that step is measured.

    Counted is the least it needs: two hidden states and one MLP state per token, in two bytes each,
    and the float32 logits of every sequence.
    """
    total = device_memory_bytes(choose(config.device), config.device_memory_bytes)
    for flag, count, each in (
        ("--chunk-size-limit", config.chunk_size_limit,
         2 * (2 * model.hidden_size + model.intermediate_size)),
        ("--max-num-seqs-limit", config.max_num_seqs_limit, 4 * model.vocab_size),
    ):  # fmt: skip
        if count * each > total:
            raise EngineConfigError(
                f"{flag} ({count}) needs at least {count * each / GIB:.1f} GiB for one step, more "
                f"than the device memory of {total / GIB:.1f} GiB: lower it to "
                f"{total // each} or less"
            )


def is_exhausted(error: BaseException) -> bool:
    """Whether an allocation failed; torch's CPU allocator says so only in its message."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error) for words in ("can't allocate memory", "not enough memory")
    )


def measure_peak_bytes(device: torch.device, work: Callable[[], None]) -> int:
    """The most memory that work held at once beyond what was held before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    _release_freed_memory()  # first, or what it hands back would stand in the peak
    with contextlib.suppress(OSError):  # else the peak is the whole life's: never less than true
        Path("/proc/self/clear_refs").write_text("5")  # resets the process's peak to its present
    before, files_before = _status_bytes("VmRSS"), _status_bytes("RssFile")
    work()
    # Pages of libraries and model files that came (back) into memory meanwhile are no activations.
    files = max(0, _status_bytes("RssFile") - files_before)
    return max(0, _status_bytes("VmHWM") - before - files)


def _release_freed_memory() -> None:
    """Hand back what loading left in the allocator, else the work would reuse it unseen."""
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0
