"""Which target the options mean: a URL is asked what it is, else --target says what to start."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.knobs import KNOBS
from tuner.endpoint import base_url, check_api_key
from tuner.errors import UserError
from tuner.targets import http
from tuner.targets.base import Target, TargetError
from tuner.targets.restart import Start
from tuner.targets.sglang import SglangTarget
from tuner.targets.slotune import SlotuneTarget
from tuner.targets.url import UrlTarget
from tuner.targets.vllm import VllmTarget

SGLANG_COMMAND = "python3 -m sglang.launch_server"


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """kind "slotune", "vllm" or "sglang" is what to start when url is None. knobs: names of the
    knobs that are to be tuned beside the usual ones. here: it starts on this machine, so that its
    program has to be there."""

    kind: str = "slotune"
    url: str | None = None
    model: str | None = None
    api_key: str | None = None
    serve_args: tuple[str, ...] = ()
    vllm_binary: str = "vllm"
    sglang_command: str = SGLANG_COMMAND
    startup_timeout_s: float = 300.0
    log_dir: Path = Path(".slotune/logs")
    knobs: tuple[str, ...] = ()
    here: bool = True


def open_target(options: TargetOptions) -> Target:
    """The target, not yet started. UserError when nothing answers or something is missing."""
    if options.url is not None:
        url = base_url(options.url)
        check_api_key(options.api_key)
        if options.serve_args:
            raise UserError("--serve-args is for a server the tuner starts; leave out --url")
        if _engine_at(url, options.api_key) == "slotune":
            return SlotuneTarget(
                url, model=options.model, api_key=options.api_key, knobs=options.knobs
            )
        return UrlTarget(url, model=options.model, api_key=options.api_key)
    if options.kind in ("vllm", "sglang"):
        _check(options)
    if options.kind == "vllm":
        program = _program(options.vllm_binary, "--vllm-binary", options)
        return VllmTarget(_start(options, (program,)))
    if options.kind == "sglang":
        words = shlex.split(options.sglang_command) or [""]
        program = _program(words[0], "--sglang-command", options)
        return SglangTarget(_start(options, (program, *words[1:])))
    return SlotuneTarget(
        model=options.model,
        api_key=options.api_key,
        serve_args=options.serve_args,
        startup_timeout_s=options.startup_timeout_s,
        log_dir=options.log_dir,
        knobs=options.knobs,
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


def _check(options: TargetOptions) -> None:
    if not options.model:
        raise UserError(
            f"--target {options.kind} needs --model: a hub id or a model folder to serve"
        )
    unknown = [n for n in options.knobs if n in KNOBS and not _has_flag(n, options.kind)]
    if unknown:
        raise UserError(f"--knob {unknown[0]}: {options.kind} has no flag for it")


def _start(options: TargetOptions, program: tuple[str, ...]) -> Start:
    return Start(
        program,
        options.model or "",
        api_key=options.api_key,
        serve_args=options.serve_args,
        startup_timeout_s=options.startup_timeout_s,
        log_dir=options.log_dir,
        device="cuda" if os.path.exists("/dev/nvidia0") else "cpu",
        knobs=options.knobs,
    )


def _has_flag(name: str, kind: str) -> bool:
    knob = KNOBS[name]
    return (knob.vllm_flag if kind == "vllm" else knob.sglang_flag) is not None


def _program(name: str, flag: str, options: TargetOptions) -> str:
    path = shutil.which(name) if options.here else name
    if path is None:
        raise UserError(f"{flag} {name!r} is not an executable; give its full path")
    return path
