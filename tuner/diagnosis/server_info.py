"""What a server says of itself beside its metrics: knobs with their bounds, device, cache settings.

slotune's engine has the route, SGLang (older ones as /get_server_info), and vLLM in its development
mode (VLLM_SERVER_DEV_MODE=1). Without it the tree says which setting it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage.sources.targets import instances
from tuner.endpoint import base_url
from tuner.errors import UserError
from tuner.targets import TargetError, http

TIMEOUT_S = 3.0

_VLLM = "vllm_config"
VLLM_SETTINGS = ("max_num_seqs", "max_num_batched_tokens")
"""What vLLM's own metrics lack, by vLLM's names, in its scheduler_config."""

_SGLANG, _CAP = "mem_fraction_static", "effective_max_running_requests_per_dp"
SGLANG_SETTINGS = ("max_running_requests", "chunked_prefill_size", "page_size")
"""What SGLang was started with, or has worked out; by its own names."""


def server_info(url: str) -> dict[str, Any]:
    """The server's /server_info, of vLLM's and SGLang's only what the tree needs; {} where it has
    none, or answers otherwise or not at all."""
    info = _answer(url, "/server_info", "/get_server_info")
    if _VLLM in info:
        return of_vllm(_answer(url, "/server_info?config_format=json"))
    return of_sglang(info) if _SGLANG in info else info


def info_by_instance(urls: Sequence[str]) -> dict[str, dict[str, Any]]:
    """As server_info, of each server by the `instance` that its series carry."""
    return {name: server_info(url) for name, url in zip(instances(urls), urls, strict=True)}


def of_vllm(info: dict[str, Any]) -> dict[str, Any]:
    """Settings out of vLLM's answer; {} where it is not as vLLM 0.32 has it."""
    config = info.get(_VLLM)
    scheduler = config.get("scheduler_config") if isinstance(config, dict) else None
    if not isinstance(scheduler, dict):
        return {}
    return {name: scheduler[name] for name in VLLM_SETTINGS if name in scheduler}


def of_sglang(info: dict[str, Any]) -> dict[str, Any]:
    """Settings out of SGLang's answer, by its names or the tree's. The cap is one engine's: each of
    its data-parallel ranks has its own."""
    told = {name: info[name] for name in SGLANG_SETTINGS if _above_0(info.get(name))}
    states = info.get("internal_states")
    ranks = states if isinstance(states, list) else []
    caps = [rank[_CAP] for rank in ranks if isinstance(rank, dict) and _above_0(rank.get(_CAP))]
    if caps:
        told["max_running_requests"] = min(caps)
    tokens: Any = info.get("max_total_num_tokens")
    page: Any = info.get("page_size")
    if _above_0(tokens) and _above_0(page):
        told["num_kv_blocks"] = tokens // page
    if isinstance(info.get("disable_radix_cache"), bool):
        told["enable_prefix_caching"] = not info["disable_radix_cache"]
    return told


def _above_0(value: object) -> bool:
    """Whether it is a count that is set: SGLang says None or -1 where it is not."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _answer(url: str, *paths: str) -> dict[str, Any]:
    """Of the first of these routes that is there; a server that does not answer is asked once."""
    for path in paths:
        try:
            info = http.call(base_url(url) + path, timeout_s=TIMEOUT_S)
        except http.HttpRefusalError:
            continue
        except (TargetError, UserError):
            break
        return info if isinstance(info, dict) else {}
    return {}
