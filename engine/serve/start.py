"""From a configuration to a running server: the order of start-up in one place.

Port first, then the model's path, then the thread environment, and only then torch: what can fail
early fails early.
"""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import engine.environment
from engine.cli import ServeOptions
from engine.config import EngineConfig, SchedulerConfig
from engine.models.locate import locate
from engine.serve import server

if TYPE_CHECKING:
    from engine.runner import ModelRunner
    from engine.serve.service import Service

_SWITCH_INTERVAL_S = 0.001
"""The interpreter's turn for a thread: the model's thread, back from a kernel, must not wait 5 ms
for the event loop's."""


def serve(config: EngineConfig, options: ServeOptions) -> int:
    """Serve until a signal; the exit code. EngineConfigError for what the user can mend."""
    with server.bind(options.host, options.port) as listener:
        path = locate(config.model)
        engine.environment.apply(config)
        service = build_service(config, options, path)
        return _run(service, listener)


def build_service(config: EngineConfig, options: ServeOptions, path: Path) -> Service:
    """Load the model and put scheduler, engine, metrics and tokenizer around it."""
    from engine.runner import ModelRunner
    from engine.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(path)
    runner = ModelRunner(dataclasses.replace(config, model=str(path)))
    runner.warmup()
    return assemble(config, options, runner, tokenizer, name=served_name(config, path))


def served_name(config: EngineConfig, path: Path) -> str:
    """--served-model-name, else the model as it was named, else the packaged model's name."""
    return config.served_model_name or config.model or path.stem.rsplit(".", 1)[0]
