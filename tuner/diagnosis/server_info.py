"""What a server says of itself beside its metrics: knobs with their bounds, device, cache settings.

slotune's engine has the route, and vLLM in its development mode (VLLM_SERVER_DEV_MODE=1). Without
it the tree says which setting it lacks.
"""

from __future__ import annotations

from typing import Any

from tuner.endpoint import base_url
from tuner.errors import UserError
from tuner.targets import TargetError, http

TIMEOUT_S = 3.0

_VLLM = "vllm_config"
VLLM_SETTINGS = ("max_num_seqs", "max_num_batched_tokens")
"""What vLLM's own metrics lack, by vLLM's names, in its scheduler_config."""


def server_info(url: str) -> dict[str, Any]:
    """The server's /server_info, of vLLM's only what the tree needs; {} where it has none, or
    answers otherwise or not at all."""
    info = _answer(url, "/server_info")
    return of_vllm(_answer(url, "/server_info?config_format=json")) if _VLLM in info else info


def of_vllm(info: dict[str, Any]) -> dict[str, Any]:
    """Settings out of vLLM's answer; {} where it is not as vLLM 0.32 has it."""
    config = info.get(_VLLM)
    scheduler = config.get("scheduler_config") if isinstance(config, dict) else None
    if not isinstance(scheduler, dict):
        return {}
    return {name: scheduler[name] for name in VLLM_SETTINGS if name in scheduler}


def _answer(url: str, path: str) -> dict[str, Any]:
    try:
        info = http.call(base_url(url) + path, timeout_s=TIMEOUT_S)
    except (http.HttpRefusalError, TargetError, UserError):
        return {}
    return info if isinstance(info, dict) else {}
