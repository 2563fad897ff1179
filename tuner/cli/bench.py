"""`tuner bench`: one honest measurement of a server that runs, or of one started for it."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    add_database_option,
    add_load_options,
    add_output_options,
    add_prometheus_options,
    output_file,
)

NAME = "bench"
HELP = "measure a server under a load, with intervals and SLO verdicts"

DEFAULT_DURATION = "30s"
DEFAULT_WARMUP = "5s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from tuner.cli.targets import add_tuned_target_options

    parser.add_argument("base_url", nargs="?", metavar="URL", help="the server, http://HOST:PORT")
    add_tuned_target_options(parser, default=None)
    parser.add_argument(
        "--api", choices=("completions", "chat"), default="completions",
        help="endpoint to load (default %(default)s: token-id prompts of exact length)",
    )  # fmt: skip
    add_load_options(parser)
    _add_sending(parser.add_argument_group("sending"))
    _add_measuring(parser.add_argument_group("measurement"))
    add_prometheus_options(parser)
    add_database_option(parser)
    add_output_options(parser)
    parser.add_argument(
        "--html", type=output_file, metavar="FILE", help="also write the run as a web page"
    )


def _add_sending(group: Any) -> None:
    group.add_argument(
        "--same-content", action="store_true",
        help="the same tokens as any run with this seed (default: fresh, so that no cache is warm)",
    )  # fmt: skip
    group.add_argument(
        "--extra-body", metavar="JSON", help="""merged into each request, e.g. '{"top_p": 0.9}'"""
    )
    group.add_argument(
        "--request-timeout",
        default="10m",
        metavar="TIME",
        help="a request that takes longer has failed (default %(default)s)",
    )
    group.add_argument(
        "--token-timeout", metavar="TIME",
        help="a request that waits longer for its next token has failed (default: no limit)",
    )  # fmt: skip
    group.add_argument(
        "--processes", type=int, metavar="N",
        help="processes that send the load (default: what the rate needs)",
    )  # fmt: skip


def _add_measuring(group: Any) -> None:
    group.add_argument(
        "--duration", default=DEFAULT_DURATION, metavar="TIME",
        help="length of the measured window (default %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--warmup", default=DEFAULT_WARMUP, metavar="TIME",
        help="not counted; lasts until the run has settled, at least so long (default %(default)s)",
    )  # fmt: skip
    group.add_argument("--max-requests", type=int, metavar="N", help="end after N requests")
    group.add_argument(
        "--until-decided", action="store_true", help="end as soon as every SLO is decided"
    )
    group.add_argument(
        "--price-per-hour", type=float, metavar="$", help="of the server, for cost_per_mtok"
    )
    group.add_argument(
        "--quality",
        metavar="FILE",
        help="also ask these questions, for an accuracy SLO (docs/quality.md)",
    )
    group.add_argument("--no-store", action="store_true", help="keep nothing in the database")


def run(args: argparse.Namespace) -> int:
    from tuner.cli.run_bench import run_bench

    return EXIT_ANSWER_IS_NO if run_bench(args) == "fail" else EXIT_DONE
