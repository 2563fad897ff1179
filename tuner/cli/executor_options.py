"""The options of `tuner optimize` that say where its trials run: here, or on a Ray cluster."""

from __future__ import annotations

import argparse

from tuner.errors import UserError

LOCAL, RAY = "local", "ray"
CPUS_PER_WORKER = 1.0

_FOR_RAY = ("ray_address", "workers", "gpus_per_worker", "cpus_per_worker")


def add_executor_options(parser: argparse.ArgumentParser) -> None:
    """--executor, and what belongs to ray."""
    group = parser.add_argument_group(
        "several machines", "on a Ray cluster each worker has a server of its own"
    )
    group.add_argument(
        "--executor",
        choices=(LOCAL, RAY),
        default=LOCAL,
        help="where trials run (default %(default)s); ray needs slotune[ray]",
    )
    group.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help='head node of the cluster, or "local" for a new one (default: the cluster that this '
        "machine belongs to, else a new one here)",
    )
    group.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help="workers at once (default: as many as have GPUs; without GPUs one a machine)",
    )
    group.add_argument(
        "--gpus-per-worker",
        type=_gpus,
        metavar="N",
        help="GPUs of each (default: 1 where the cluster has any)",
    )
    group.add_argument(
        "--cpus-per-worker", type=_cpus, metavar="N", help="CPUs of each (default 1)"
    )


def check_executor(args: argparse.Namespace) -> None:
    """UserError for options that contradict each other."""
    if args.executor == RAY:
        if args.url is not None:
            raise UserError(
                "--executor ray starts a server for each worker (--target slotune, vllm or "
                "sglang): leave out --url"
            )
        return
    for name in _FOR_RAY:
        if getattr(args, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} is for --executor ray: give that too")


def executor_words(args: argparse.Namespace) -> list[str]:
    """The options again, as a command line has them."""
    if args.executor == LOCAL:
        return []
    words = ["--executor", args.executor]
    for name in _FOR_RAY:
        value = getattr(args, name)
        if value is not None:
            words += [
                f"--{name.replace('_', '-')}",
                f"{value:g}" if name != "ray_address" else value,
            ]
    return words


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _gpus(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {value}")
    return value


def _cpus(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of CPUs, 0 or more, got {text}")
    return value
