"""`vllm serve` as a target: every configuration is a fresh start of our own process.

Environment variables (VLLM_CPU_KVCACHE_SPACE and the like) are handed through. A knob that
--serve-args names has that value as its baseline; the others the table's default for the device.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from tuner.targets.flags import Dialect
from tuner.targets.restart import RestartTarget


class VllmTarget(RestartTarget):
    """how.program: vLLM's executable; how.model: what to serve (hub id or folder)."""

    kind = "vllm"
    dialect: Dialect = "vllm"

    def command(self, port: int) -> list[str]:
        command = [*self.how.program, "serve", self.how.model]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        return command + (["--api-key", self.how.api_key] if self.how.api_key else [])

    def environment(self) -> dict[str, str]:
        """vLLM offers /reset_prefix_cache in its development mode only."""
        return {} if "VLLM_SERVER_DEV_MODE" in os.environ else {"VLLM_SERVER_DEV_MODE": "1"}

    def ask(self) -> dict[str, Any]:
        """Version and size of the KV cache."""
        version = self.get("/version")
        told: dict[str, Any] = {}
        if isinstance(version, dict):
            told["version"] = str(version.get("version", ""))
        cache = self.metrics_info("vllm:cache_config_info")
        with contextlib.suppress(KeyError, ValueError):
            told["kv_cache_tokens"] = int(cache["num_gpu_blocks"]) * int(cache["block_size"])
            told["kv_cache_share"] = float(cache["gpu_memory_utilization"])
        return told
