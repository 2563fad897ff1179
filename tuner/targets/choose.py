"""Which target the options mean: a URL is asked what it is, else --target says what to start."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.endpoint import base_url
from tuner.errors import UserError
from tuner.targets import http
from tuner.targets.base import Target, TargetError
from tuner.targets.slotune import SlotuneTarget
from tuner.targets.url import UrlTarget
from tuner.targets.vllm import VllmTarget


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """kind "slotune" or "vllm" is what to start when url is None."""

    kind: str = "slotune"
    url: str | None = None
    model: str | None = None
    api_key: str | None = None
    serve_args: tuple[str, ...] = ()
    vllm_binary: str = "vllm"
    startup_timeout_s: float = 300.0
    log_dir: Path = Path(".slotune/logs")


def open_target(options: TargetOptions) -> Target:
    """The target, not yet started. UserError when nothing answers or something is missing."""
    if options.url is not None:
        url = base_url(options.url)
        if options.serve_args:
            raise UserError("--serve-args is for a server the tuner starts; leave out --url")
        if _engine_at(url, options.api_key) == "slotune":
            return SlotuneTarget(url, model=options.model, api_key=options.api_key)
        return UrlTarget(url, model=options.model, api_key=options.api_key)
    if options.kind == "vllm":
        return _vllm(options)
    return SlotuneTarget(
        model=options.model,
        api_key=options.api_key,
        serve_args=options.serve_args,
        startup_timeout_s=options.startup_timeout_s,
        log_dir=options.log_dir,
    )


def _engine_at(url: str, api_key: str | None) -> str:
    try:
        info: Any = http.call(f"{url}/server_info", api_key=api_key)
    except http.HttpRefusalError as refusal:
        if refusal.status in (401, 403):
            raise UserError(
                f"{url} refuses the API key (HTTP {refusal.status}): give --api-key"
            ) from refusal
        return ""
    except TargetError as error:
        raise UserError(f"{error.reason}: is the server up?") from error
    return str(info.get("engine", "")) if isinstance(info, dict) else ""


def _vllm(options: TargetOptions) -> Target:
    if not options.model:
        raise UserError("--target vllm needs --model: a hub id or a model folder to serve")
    binary = shutil.which(options.vllm_binary)
    if binary is None:
        raise UserError(
            f"--vllm-binary {options.vllm_binary!r} is not an executable; give vLLM's full path"
        )
    return VllmTarget(
        binary,
        options.model,
        api_key=options.api_key,
        serve_args=options.serve_args,
        startup_timeout_s=options.startup_timeout_s,
        log_dir=options.log_dir,
        device="cuda" if os.path.exists("/dev/nvidia0") else "cpu",
    )
