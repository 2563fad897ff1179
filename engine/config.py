"""The engine's configuration: one frozen dataclass, passed whole, checked once.

Imports no torch. What depends on the device or the model (dtype, KV blocks, max_model_len) is
resolved by the runner at start-up and published in /server_info.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.errors import EngineConfigError
from engine.knobs import KNOBS

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")

MAX_SEED = 2**63 - 1
MAX_THREADS = 1024
"""More than any machine's cores; OpenMP crashes the process when it cannot start so many."""

MAX_BLOCK_SIZE = 4096
MAX_KV_BLOCKS = 2**31 - 1
"""Block tables are int32."""


DEVICE_KNOBS = frozenset({"max_num_seqs", "chunk_size"})
"""Knobs whose default depends on the device."""


def budget_fault(
    max_num_seqs: int,
    chunk_size: int,
    *,
    names: tuple[str, str] = ("max_num_seqs", "chunk_size"),
) -> str:
    """Why a step cannot have both limits, in one sentence; "" when it can."""
    if chunk_size >= max_num_seqs:
        return ""
    return (
        f"{names[1]} ({chunk_size}) must be at least {names[0]} ({max_num_seqs}): "
        "every running sequence needs one token of the step's budget"
    )


def _default(knob: str, device: str = "cpu") -> int | float | bool | str:
    return KNOBS[knob].default_cuda if device == "cuda" else KNOBS[knob].default_cpu


@dataclass(frozen=True)
class EngineConfig:
    """Everything `engine serve` decides before the model is loaded.

    model "" means the packaged SmolLM2. max_model_len None means the model's own limit.
    max_num_seqs and chunk_size are the values at start; *_limit are the upper bounds of live
    changes, for which buffers are sized. device_memory_bytes None means: all of a GPU's memory,
    or a quarter of the machine's RAM on a CPU. not_given names the knobs whose value is only a
    device's default, to be taken again once the device is known.
    """

    model: str = ""
    served_model_name: str = ""
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = int(_default("max_num_seqs"))
    chunk_size: int = int(_default("chunk_size"))
    max_num_seqs_limit: int = 256
    chunk_size_limit: int = 8192
    gpu_memory_utilization: float = float(_default("gpu_memory_utilization"))
    gpu_memory_utilization_limit: float | None = None
    device_memory_bytes: int | None = None
    num_kv_blocks: int | None = None
    block_size: int = int(_default("block_size"))
    enable_prefix_caching: bool = bool(_default("enable_prefix_caching"))
    long_prefill_token_threshold: int | None = None
    max_num_queued_reqs: int | None = None
    attention_backend: str = "auto"
    enforce_eager: bool = False
    num_threads: int | None = None
    seed: int = 0
    not_given: frozenset[str] = frozenset()

    def checked(self) -> EngineConfig:
        """Return self with limits widened to hold the start values, or raise EngineConfigError."""
        self._check_choices()
        self._check_counts()
        self._check_memory()
        return replace(
            self,
            max_num_seqs_limit=max(self.max_num_seqs_limit, self.max_num_seqs),
            chunk_size_limit=max(self.chunk_size_limit, self.chunk_size),
            gpu_memory_utilization_limit=self.gpu_memory_utilization_limit
            or self.gpu_memory_utilization,
        )

    def with_defaults_of(self, device: str) -> EngineConfig:
        """The knobs in not_given at the defaults of "cpu" or "cuda", fitted to those given: so
        `--chunk-size 64` alone starts."""
        defaults: dict[str, Any] = {
            name: int(_default(name, device)) for name in DEVICE_KNOBS & self.not_given
        }
        config = replace(self, **defaults)
        if "max_num_seqs" in self.not_given:
            config = replace(config, max_num_seqs=min(config.max_num_seqs, config.chunk_size))
        if "chunk_size" in self.not_given:
            config = replace(config, chunk_size=max(config.chunk_size, config.max_num_seqs))
        return config

    def model_len(self, models_own: int) -> int:
        """Tokens of the longest request, for a model that was trained for `models_own`."""
        wanted = self.max_model_len or models_own
        _require(
            wanted <= models_own,
            f"--max-model-len ({wanted}) must not exceed the model's own {models_own}",
        )
        return wanted

    def _check_choices(self) -> None:
        _require(
            self.device in DEVICES,
            f"--device must be one of {', '.join(DEVICES)}, got {self.device!r}",
        )
        _require(
            self.dtype in DTYPES, f"--dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}"
        )
        _require(
            0 <= self.seed <= MAX_SEED, f"--seed must be between 0 and {MAX_SEED}, got {self.seed}"
        )

    def _check_counts(self) -> None:
        for name, value in (
            ("max-num-seqs", self.max_num_seqs),
            ("chunk-size", self.chunk_size),
            ("long-prefill-token-threshold", self.long_prefill_token_threshold),
            ("max-num-queued-reqs", self.max_num_queued_reqs),
            ("num-threads", self.num_threads),
        ):
            _require(value is None or value >= 1, f"--{name} must be at least 1, got {value}")
        fault = budget_fault(
            self.max_num_seqs, self.chunk_size, names=("--max-num-seqs", "--chunk-size")
        )
        _require(not fault, fault)
        highest = max(self.chunk_size, self.chunk_size_limit)
        threshold = self.long_prefill_token_threshold
        _require(
            threshold is None or threshold <= highest,
            f"--long-prefill-token-threshold ({threshold}) must be at most {highest}, the most "
            "tokens a step may have (--chunk-size-limit): above that it would have no effect",
        )
        _require(
            self.num_threads is None or self.num_threads <= MAX_THREADS,
            f"--num-threads must be at most {MAX_THREADS}, got {self.num_threads}",
        )
        _require(
            self.max_model_len is None or self.max_model_len >= 2,
            f"--max-model-len must be at least 2, got {self.max_model_len}",
        )

    def _check_memory(self) -> None:
        share, limit = self.gpu_memory_utilization, self.gpu_memory_utilization_limit
        _require(0 < share <= 1, f"--gpu-memory-utilization must be in (0, 1], got {share}")
        _require(
            limit is None or share <= limit <= 1,
            f"--gpu-memory-utilization-limit must be between --gpu-memory-utilization ({share}) "
            f"and 1, got {limit}",
        )
        _require(
            self.block_size >= 1 and self.block_size & (self.block_size - 1) == 0,
            f"--block-size must be a power of two, got {self.block_size}",
        )
        _require(
            self.block_size <= MAX_BLOCK_SIZE,
            f"--block-size must be at most {MAX_BLOCK_SIZE}, got {self.block_size}",
        )
        blocks = self.num_kv_blocks
        _require(
            blocks is None or 1 <= blocks <= MAX_KV_BLOCKS,
            f"--num-kv-blocks must be between 1 and {MAX_KV_BLOCKS}, got {blocks}",
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise EngineConfigError(message)


@dataclass(frozen=True)
class SchedulerConfig:
    """What the pure core needs to know; the live knobs are replaced as a whole."""

    max_num_seqs: int
    chunk_size: int
    max_model_len: int
    block_size: int
    num_kv_blocks: int
    """Blocks that exist; block 0 … num_kv_blocks-1."""
    kv_blocks_cap: int | None = None
    """Live cap on blocks in use, ≤ num_kv_blocks (gpu_memory_utilization turned down)."""
    enable_prefix_caching: bool = True
    long_prefill_token_threshold: int | None = None
    max_num_queued_reqs: int | None = None
