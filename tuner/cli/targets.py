"""The options that say what is tuned: a running server by URL, or one the tuner starts itself."""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import ProgressLine, add_target_options

if TYPE_CHECKING:
    from tuner.targets import Target
    from tuner.targets.base import Config

KINDS = ("slotune", "vllm", "sglang")
DEFAULT_STARTUP_S, DEFAULT_LOG_DIR = 600.0, ".slotune/logs"

STARTS_LATER = ("vllm", "sglang")
"""Targets that start at their first configuration: faults of the knobs show before."""


def add_tuned_target_options(
    parser: argparse.ArgumentParser, *, default: str | None = "slotune"
) -> None:
    """--url …, or --target with what it takes to start one. default None: nothing is started unless
    --target is given."""
    add_target_options(parser)
    group = parser.add_argument_group(
        "starting a server", "without --url the tuner starts the server, and stops it at the end"
    )
    told = f"default {default}" if default else "default: none, and a URL is needed"
    group.add_argument("--target", choices=KINDS, default=default, help=f"what to start ({told})")
    group.add_argument(
        "--serve-args",
        default="",
        metavar="FLAGS",
        help='flags handed to the started server, e.g. --serve-args="--max-model-len 2048"',
    )
    group.add_argument(
        "--vllm-binary", default="vllm", metavar="PATH",
        help="vLLM's executable (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--sglang-command",
        default="python3 -m sglang.launch_server",
        metavar="COMMAND",
        help='what runs SGLang (default "%(default)s")',
    )
    group.add_argument(
        "--startup-timeout",
        type=_seconds,
        default=DEFAULT_STARTUP_S,
        metavar="S",
        help=f"how long a start may take, in seconds (default {DEFAULT_STARTUP_S:g})",
    )
    group.add_argument(
        "--log-dir",
        default=DEFAULT_LOG_DIR,
        metavar="DIR",
        help="where the logs of started servers go (default %(default)s)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text}")
    return value


def target_from(
    args: argparse.Namespace, knobs: Sequence[str] = (), *, here: bool = True
) -> Target:
    """The target the options name, not yet started; knobs: --knob texts; here: whether it starts on
    this machine. UserError when the options contradict each other."""
    from tuner.errors import UserError
    from tuner.search.knob_text import names_of
    from tuner.targets import TargetOptions, open_target

    try:
        serve_args = tuple(shlex.split(args.serve_args))
    except ValueError as error:
        raise UserError(
            f"--serve-args {args.serve_args!r} cannot be split into flags ({error}); write them as "
            "in a shell"
        ) from None
    return open_target(
        TargetOptions(
            kind=args.target,
            url=args.url,
            model=args.model,
            api_key=args.api_key,
            serve_args=serve_args,
            vllm_binary=args.vllm_binary,
            sglang_command=args.sglang_command,
            startup_timeout_s=args.startup_timeout,
            log_dir=Path(args.log_dir),
            knobs=names_of(knobs),
            here=here,
        )
    )


@contextlib.contextmanager
def started(target: Target) -> Iterator[None]:
    """Start the target, and stop it at the end. What it fails with is a UserError that holds the
    end of the server's log."""
    from tuner.errors import UserError
    from tuner.targets import TargetError

    try:
        target.start()
        yield
    except TargetError as error:
        tail = f"\nend of the server's log:\n{error.log_tail}" if error.log_tail else ""
        raise UserError(f"{error.reason}{tail}") from error
    finally:
        target.stop()


def leave(target: Target, config: Config, line: ProgressLine) -> None:
    """Put a server that stays up into the configuration it is to keep, and say so; or why not,
    even when the rest is to be quiet."""
    from tuner.errors import UserError
    from tuner.printable import shown
    from tuner.targets import TargetError
    from tuner.targets.base import config_text

    if target.describe().get("started_here"):
        return
    try:
        target.apply(config)
    except (TargetError, UserError) as error:
        line.clear()
        print(
            f"tuner: the server could not be put back to {config_text(config)}: "
            f"{shown(str(error))}",
            file=sys.stderr,
        )
    else:
        line.note(f"the server is left at {config_text(config)}")
