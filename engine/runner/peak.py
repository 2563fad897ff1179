"""The device's roofs: FLOP/s of dense matrix products and bytes/s of memory.

A GPU's come from its maker's data sheet; any other device's are measured in well under a second and
kept in the user's cache. Invariant: of two measurements of one device the higher counts, for other
programs can only slow a device down.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

log = logging.getLogger("engine")

FRESH_S = 86_400.0
"""A measurement older than this is repeated at the next start."""

_MEASURE_S = 0.08
_MATRIX = 512
_STREAM_BYTES = 256 * 1024 * 1024
"""Several times a last-level cache, so that a piece is out of it when its turn comes again."""

_PIECE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DevicePeak:
    """source: the data sheet, or "measured"."""

    flops_per_s: float
    bytes_per_s: float
    source: str


# Dense bfloat16 (float16 where there is none) FLOP/s without sparsity, and memory bytes/s, of the
# makers' data sheets; the longest name found in the device's name counts.
_GPUS: dict[str, tuple[float, float]] = {
    "B200": (2.25e15, 8.0e12),  # NVIDIA HGX B200 data sheet
    "H200": (989e12, 4.8e12),  # NVIDIA H200 data sheet, SXM
    "H100": (989e12, 3.35e12),  # NVIDIA H100 data sheet, SXM
    "H100 PCIe": (756e12, 2.0e12),  # NVIDIA H100 data sheet, PCIe
    "A100-SXM4-80GB": (312e12, 2.039e12),  # NVIDIA A100 data sheet
    "A100-SXM4-40GB": (312e12, 1.555e12),
    "A100 80GB PCIe": (312e12, 1.935e12),
    "A100-PCIE-40GB": (312e12, 1.555e12),
    "L40S": (362e12, 864e9),  # NVIDIA L40S data sheet
    "L4": (121e12, 300e9),  # NVIDIA L4 data sheet
    "A10": (125e12, 600e9),  # NVIDIA A10 data sheet
    "A10G": (70e12, 600e9),
    "V100": (125e12, 900e9),  # NVIDIA V100 data sheet, SXM2
    "T4": (65e12, 320e9),  # NVIDIA T4 data sheet
    "RTX 4090": (165e12, 1008e9),  # NVIDIA Ada whitepaper, float32 accumulation
    "RTX 3090": (71e12, 936e9),  # NVIDIA Ampere GA102 whitepaper, float32 accumulation
}


def device_peak(device: torch.device, dtype: torch.dtype) -> DevicePeak:
    """Of the table, of the cache, or measured now."""
    if device.type == "cuda":
        name = str(torch.cuda.get_device_name(device))
        if (known := of_gpu(name)) is not None:
            return known
    else:
        name = f"{_cpu_name()}, {torch.get_num_threads()} threads"
    key = f"{name}, {str(dtype).removeprefix('torch.')}, torch {torch.__version__}"
    kept, at_s = _kept(key)
    if kept is not None and time.time() - at_s < FRESH_S:
        return kept
    found = measure(device, dtype)
    if kept is not None:
        found = DevicePeak(
            max(found.flops_per_s, kept.flops_per_s), max(found.bytes_per_s, kept.bytes_per_s),
            "measured",
        )  # fmt: skip
    _keep(key, found)
    return found


def of_gpu(name: str) -> DevicePeak | None:
    """By the longest table entry whose words are all in the device's name."""
    words = name.replace("NVIDIA", "").split()
    fitting = [key for key in _GPUS if set(key.split()) <= set(words) or key in words]
    if not fitting:
        fitting = [key for key in _GPUS if any(word.split("-")[0] == key for word in words)]
    if not fitting:
        return None
    flops_per_s, bytes_per_s = _GPUS[max(fitting, key=len)]
    return DevicePeak(flops_per_s, bytes_per_s, "data sheet")


def measure(device: torch.device, dtype: torch.dtype) -> DevicePeak:
    """The best of many short matrix products, and of many short sums over a long vector.

    On a CPU products are timed on one thread and counted for all: a thread is left alone for a
    millisecond even while other programs run, all threads at once seldom are.
    """
    a, b = (torch.ones(_MATRIX, _MATRIX, dtype=dtype, device=device) for _ in range(2))
    stream = torch.ones(_STREAM_BYTES // 4, dtype=torch.float32, device=device)
    pieces = itertools.cycle(torch.split(stream, _PIECE_BYTES // 4))
    threads = torch.get_num_threads()
    sum_s = _shortest_s(lambda: torch.sum(next(pieces)), device)
    try:
        if device.type == "cpu":
            torch.set_num_threads(1)
        product_s = _shortest_s(lambda: torch.mm(a, b), device)
        sum_s = min(sum_s, _shortest_s(lambda: torch.sum(next(pieces)), device))
    finally:
        torch.set_num_threads(threads)
    factor = threads if device.type == "cpu" else 1
    flops_per_s = factor * 2.0 * _MATRIX**3 / product_s
    return DevicePeak(flops_per_s, _PIECE_BYTES / sum_s, "measured")


def _shortest_s(work: Callable[[], object], device: torch.device) -> float:
    def once() -> float:
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    once()
    shortest_s, end = once(), time.perf_counter() + _MEASURE_S
    while time.perf_counter() < end:
        shortest_s = min(shortest_s, once())
    return shortest_s


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "slotune" / "device_peak.json"


def _all_kept() -> dict[str, dict[str, float]]:
    try:
        found = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _kept(key: str) -> tuple[DevicePeak | None, float]:
    try:
        row = _all_kept()[key]
        peak = DevicePeak(float(row["flops_per_s"]), float(row["bytes_per_s"]), "measured")
        return peak, float(row["at_s"])
    except (KeyError, TypeError, ValueError):
        return None, 0.0


def _keep(key: str, peak: DevicePeak) -> None:
    """Best effort: without a cache the next start measures again."""
    row = {name: value for name, value in asdict(peak).items() if name != "source"}
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({**_all_kept(), key: {**row, "at_s": time.time()}}))
        draft.replace(path)
    except OSError as fault:
        log.debug("the device's peak is not kept: %s", fault)
