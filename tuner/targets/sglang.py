"""SGLang as a target: every configuration is a fresh start of `sglang.launch_server`.

A knob that --serve-args does not name is left to SGLang, which works its limits out from the
device. Metrics are switched on, so that the server's side of a measurement is there.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from tuner.targets import http
from tuner.targets.base import UNSET, Setting, TargetError
from tuner.targets.flags import Dialect
from tuner.targets.restart import RestartTarget

FLUSH_TRIES = 5
FLUSH_PAUSE_S = 0.3


class SglangTarget(RestartTarget):
    """how.program: the words that run the launcher, e.g. python3 -m sglang.launch_server."""

    kind = "sglang"
    dialect: Dialect = "sglang"
    reset_path = "/flush_cache"

    def command(self, port: int) -> list[str]:
        command = [*self.how.program, "--model-path", self.how.model, "--enable-metrics"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        return command + (["--api-key", self.how.api_key] if self.how.api_key else [])

    def baseline_of(self, name: str) -> Setting:
        return UNSET

    def reset_prefix_cache(self) -> None:
        """SGLang refuses while a request is still ending: a few tries, then as it is."""
        for _ in range(FLUSH_TRIES):
            with contextlib.suppress(http.HttpRefusalError, TargetError):
                http.call(self._url + self.reset_path, api_key=self.how.api_key, method="POST")
                return
            time.sleep(FLUSH_PAUSE_S)

    def ask(self) -> dict[str, Any]:
        """Version and what SGLang worked out: the limits that no flag has set."""
        info = self.get("/server_info") or self.get("/get_server_info")
        told: dict[str, Any] = {}
        if isinstance(info, dict):
            told["version"] = str(info.get("version", ""))
            for name in ("max_running_requests", "chunked_prefill_size", "mem_fraction_static"):
                if isinstance(info.get(name), (int, float)):
                    told[name] = info[name]
        tokens = self.metric("sglang:max_total_num_tokens")
        if tokens:
            told["kv_cache_tokens"] = int(tokens)
        return told
