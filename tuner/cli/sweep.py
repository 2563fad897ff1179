"""`tuner sweep`: one knob varied, the rest held; a table per value and what the knob trades."""

from __future__ import annotations

import argparse

from tuner.cli.common import add_database_option, add_load_options, add_output_options
from tuner.cli.search_options import add_knob_option, add_measuring_options
from tuner.cli.targets import add_tuned_target_options

NAME = "sweep"
HELP = "vary one knob, hold the rest, show what it trades"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tuned_target_options(parser)
    add_load_options(parser)
    group = parser.add_argument_group("sweep")
    add_knob_option(group, required=True)
    group.add_argument(
        "--points", type=int, default=5, help="values of a range that is swept (default 5)"
    )
    group.add_argument("--repeat", type=int, default=1, help="measurements per value (default 1)")
    add_measuring_options(group)
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.cli.run_sweep import run_sweep

    return run_sweep(args)
