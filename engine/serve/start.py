"""From a configuration to a running server: the order of start-up in one place.

Port first, then the model's path, then the thread environment, and only then torch: what can fail
early fails early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.serve import server
from engine.serve.app import create_app
from engine.serve.assemble import assemble
from engine.serve.options import ServeOptions
from engine.serve.service import Service

if TYPE_CHECKING:
    from engine.models.config import ModelConfig
    from engine.runner import ModelRunner

_SWITCH_INTERVAL_S = 0.001
"""The interpreter's turn for a thread: the model's thread, back from a kernel, must not wait 5 ms
for the event loop's."""


def serve(config: EngineConfig, options: ServeOptions) -> int:
    """Serve until a signal; the exit code. EngineConfigError for what the user can mend."""
    from engine import environment
    from engine.models.locate import locate

    with server.bind(options.host, options.port) as listener:
        path = locate(config.model)
        environment.prepare(config.num_threads)
        service = build_service(config, options, path)
        return run(service, listener, host=options.host)


def build_service(config: EngineConfig, options: ServeOptions, path: Path) -> Service:
    """Load tokenizer and model and put the service around them."""
    from engine.models import config as model_config
    from engine.runner import device
    from engine.tokenizer import load_tokenizer

    architecture = model_config.read(path)  # first: an unknown one is why the rest would fail
    config = config.with_defaults_of(device.choose(config.device).type).checked()
    config.model_len(architecture.max_model_len)
    tokenizer = load_tokenizer(path)
    runner = _load(dataclasses.replace(config, model=str(path)), architecture)
    config = dataclasses.replace(config, model=config.model or path.stem.rsplit(".", 1)[0])
    name = config.served_model_name or config.model
    return assemble(config, options, runner, tokenizer, name=name)


def _load(config: EngineConfig, architecture: ModelConfig) -> ModelRunner:
    """The runner, warm; EngineConfigError where the settings ask for memory that is not there."""
    from engine.runner import ModelRunner, memory

    memory.check_largest_step(config, architecture)
    try:
        runner = ModelRunner(config)
        runner.warmup()
    except (MemoryError, RuntimeError) as error:
        if not memory.is_exhausted(error):
            raise
        raise EngineConfigError(
            "the memory does not suffice for what the settings ask for: lower --device-memory, "
            "--gpu-memory-utilization, --num-kv-blocks, --chunk-size-limit or --max-num-seqs-limit"
        ) from error
    return runner


def run(service: Service, listener: socket.socket, *, host: str) -> int:
    """Accept connections on the bound socket until a signal."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    server.listen(listener)
    line = ready_line(service, host, listener.getsockname()[1])
    web = server.Server(
        create_app(service),
        on_ready=lambda: _tell(line),
        on_signal=service.engine.begin_stop,
    )
    web.run(sockets=[listener])
    if not web.started:
        raise EngineConfigError("the HTTP server could not start; see the log above")
    return 0


def _tell(line: str) -> None:
    """Requests are served although the file that stdout is cannot be written."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def ready_line(service: Service, host: str, port: int) -> str:
    """What is printed once, when requests are accepted."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    if ":" in reachable and not reachable.startswith("["):
        reachable = f"[{reachable}]"
    values = service.knobs.values
    return (
        f"ready: http://{reachable}:{port}  model={service.served_model_name} "
        f"max_num_seqs={values.max_num_seqs} chunk_size={values.chunk_size} "
        f"kv_blocks={service.knobs.kv_blocks_cap} attention={service.facts['attention_backend']}"
    )
