"""`engine serve`: flags to an EngineConfig, then the server. Help imports no torch, no FastAPI.

Faults of the user end with one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import engine
from engine.config import DEVICE_KNOBS, DEVICES, DTYPES, EngineConfig
from engine.errors import EngineConfigError, readable
from engine.knobs import KNOBS
from engine.serve.options import ServeOptions

EAGER_NOTE = "--enforce-eager has no effect: this engine has no graphs and no compiled steps"

_GIB = 1 << 30
_UNITS = {"": _GIB, "gib": _GIB, "gb": 10**9, "mib": 1 << 20, "mb": 10**6, "g": _GIB, "m": 1 << 20}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `engine` command; the process's exit code."""
    arguments = _parser().parse_args(argv)
    try:
        config, options = from_arguments(arguments)
        if config.enforce_eager:
            print(f"engine: {EAGER_NOTE}", file=sys.stderr)
        from engine.serve.start import serve

        return serve(config, options)
    except EngineConfigError as error:
        print(f"engine: {readable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def from_arguments(arguments: argparse.Namespace) -> tuple[EngineConfig, ServeOptions]:
    """Checked configuration from parsed flags, or EngineConfigError."""
    if not 0 <= arguments.port <= 65535:
        raise EngineConfigError(f"--port must be between 0 and 65535, got {arguments.port}")
    if arguments.model and arguments.model_tag:
        raise EngineConfigError("name the model once: as the argument or with --model")
    if not arguments.host.strip():
        raise EngineConfigError("--host must be an address or a name such as 127.0.0.1, got ''")
    if arguments.api_key is not None and not _is_key(arguments.api_key):
        raise EngineConfigError(
            "--api-key must be at least one character, none of them a space or a control character"
        )
    given = {name: value for name, value in vars(arguments).items() if name in _CONFIG_FIELDS}
    given = {name: value for name, value in given.items() if value is not None}
    config = EngineConfig(**given, not_given=DEVICE_KNOBS - given.keys())
    config = replace(config, model=arguments.model or arguments.model_tag or "")
    options = ServeOptions(
        host=arguments.host,
        port=arguments.port,
        api_key=arguments.api_key,
        enable_admin=arguments.enable_admin,
    )
    return config.with_defaults_of(config.device).checked(), options


def _is_key(key: str) -> bool:
    """Whether an HTTP header can carry the key unchanged."""
    return bool(key) and key.isprintable() and not any(map(str.isspace, key))


_CONFIG_FIELDS = frozenset(EngineConfig.__dataclass_fields__) - {"model"}


class _Parser(argparse.ArgumentParser):
    """Answers a wrong flag with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {readable(message)} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="engine",
        description="Serve a language model over the OpenAI API.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"slotune {engine.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="load a model and serve it",
        description="Load a model and serve it.",
        allow_abbrev=False,
    )
    _add_model_flags(serve)
    _add_server_flags(serve)
    _add_scheduler_flags(serve)
    _add_device_flags(serve)
    return parser


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("model_tag", nargs="?", metavar="MODEL", help="the same as --model")
    group.add_argument(
        "--model",
        help="a .gguf file, a Hugging Face folder or hub id; SmolLM2-135M-Instruct when left out",
    )
    group.add_argument("--served-model-name", metavar="NAME", help="its name in the API")
    group.add_argument("--max-model-len", type=_count, metavar="TOKENS", help="prompt + output")
    group.add_argument("--dtype", choices=DTYPES, help="of weights and KV cache (auto)")
    group.add_argument("--seed", type=int, help="of requests that bring none (0)")


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    group.add_argument(
        "--port", type=int, default=8000, help="port; 0 picks a free one (%(default)s)"
    )
    group.add_argument(
        "--api-key", metavar="KEY", help="guards everything but /health and /metrics"
    )
    group.add_argument(
        "--enable-admin",
        action="store_true",
        help="offer /admin/config and /reset_prefix_cache: live changes of knobs",
    )


def _add_scheduler_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scheduler")
    group.add_argument("--max-num-seqs", type=_count, metavar="N", help=_knob_help("max_num_seqs"))
    group.add_argument(
        "--max-num-seqs-limit", type=_count, metavar="N", help="highest live value (256)"
    )
    group.add_argument(
        "--chunk-size",
        "--max-num-batched-tokens",
        type=_count,
        dest="chunk_size",
        metavar="TOKENS",
        help=_knob_help("chunk_size"),
    )
    group.add_argument(
        "--chunk-size-limit", type=_count, metavar="TOKENS", help="highest live value (8192)"
    )
    group.add_argument(
        "--long-prefill-token-threshold",
        type=_count,
        metavar="TOKENS",
        help="most tokens of one step for one request's prompt (no limit)",
    )
    group.add_argument(
        "--max-num-queued-reqs",
        type=_count,
        metavar="N",
        help="refuse with 503 what comes when as many wait (no limit)",
    )
    group.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        help="reuse the KV blocks of shared prompt beginnings (on)",
    )


def _add_device_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("device and memory")
    group.add_argument("--device", choices=DEVICES, help="where the model runs (auto)")
    group.add_argument(
        "--device-memory",
        type=_memory,
        dest="device_memory_bytes",
        metavar="SIZE",
        help="memory the engine may use, in GiB or as 512MiB, 4GiB "
        "(a GPU's memory, or a quarter of the RAM on a CPU)",
    )
    group.add_argument(
        "--gpu-memory-utilization",
        type=float,
        metavar="SHARE",
        help=_knob_help("gpu_memory_utilization"),
    )
    group.add_argument(
        "--gpu-memory-utilization-limit",
        type=float,
        metavar="SHARE",
        help="highest live value; KV memory is allocated for it (the start value)",
    )
    group.add_argument(
        "--num-kv-blocks",
        "--num-gpu-blocks-override",
        type=_count,
        dest="num_kv_blocks",
        metavar="N",
        help="KV blocks to allocate, whatever the memory would allow",
    )
    group.add_argument("--block-size", type=_count, metavar="TOKENS", help=_knob_help("block_size"))
    group.add_argument(
        "--num-threads", type=_count, metavar="N", help="CPU threads of the model (all cores)"
    )
    group.add_argument(
        "--attention-backend", metavar="NAME", help="auto, or a backend's name (auto)"
    )
    group.add_argument(
        "--enforce-eager",
        action=argparse.BooleanOptionalAction,
        help=f"accepted as vLLM's; {EAGER_NOTE}",
    )


def _knob_help(name: str) -> str:
    knob = KNOBS[name]
    default = f"{knob.default_cpu} on a CPU, {knob.default_cuda} on a GPU"
    if knob.default_cpu == knob.default_cuda:
        default = str(knob.default_cpu)
    return f"{knob.trades} ({default})"


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer, got {text!r}") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _memory(text: str) -> int:
    """Bytes from "4", "4GiB" or "512MiB"; a bare number is GiB."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(number) :].strip().lower()
    try:
        size = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(
            f"expected a size such as 4 (GiB), 4GiB or 512MiB, got {text!r}"
        ) from None
    if not 0 < size < float("inf"):
        raise argparse.ArgumentTypeError(f"must be greater than 0, got {text!r}")
    return int(size)
