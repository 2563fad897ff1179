"""`tuner verify`: does a piece of advice hold? One knob turned, before against after, in pairs.

The server gets its own settings back unless --apply is given and the advice holds.
"""

from __future__ import annotations

import argparse

from tuner.cli.common import add_database_option, add_load_options, add_output_options
from tuner.cli.search_options import add_measuring_options
from tuner.cli.targets import add_tuned_target_options

NAME = "verify"
HELP = "prove a piece of advice: interleaved before and after, predicted and realised gain"

DEFAULT_PAIRS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tuned_target_options(parser)
    add_load_options(parser)
    group = parser.add_argument_group("what is verified")
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--node",
        metavar="KEY",
        help="a node of tuner diagnose that fires under the workload, e.g. 3a.seq_cap: its first "
        "lever is tried",
    )
    one.add_argument(
        "--knob", metavar="NAME=VALUE", help="a value against the present one, max_num_seqs=64"
    )
    one.add_argument(
        "--history", action="store_true", help="only show which advice has held up so far"
    )
    group.add_argument(
        "--figure",
        metavar="NAME",
        help="what decides, e.g. ttft_p95 (default: what the node or the first SLO is about)",
    )
    group.add_argument(
        "--pairs",
        type=int,
        default=DEFAULT_PAIRS,
        metavar="N",
        help="at most so many pairs of measurements, 2 to 8 (default %(default)s)",
    )
    group.add_argument(
        "--apply", action="store_true", help="leave the server at the new setting if it holds"
    )
    add_measuring_options(group)
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.cli.run_verify import run_verify, show_history

    return show_history(args) if args.history else run_verify(args)
