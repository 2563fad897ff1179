"""`tuner sweep`: one knob varied, the rest held; a table and a plot, and what the knob trades."""

from __future__ import annotations

import argparse

from tuner.cli.common import add_database_option, add_load_options, add_output_options, study_name
from tuner.cli.search_options import (
    DEFAULT_POINTS,
    add_constraint_option,
    add_knob_option,
    add_measuring_options,
)
from tuner.cli.targets import add_tuned_target_options

NAME = "sweep"
HELP = "vary one knob, hold the rest, show what it trades"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tuned_target_options(parser)
    add_load_options(parser, several=True)
    group = parser.add_argument_group(
        "sweep",
        "several --knob are swept one after the other; without any, the baseline is diagnosed and "
        "the knobs that the diagnosis names are swept; concurrency=… and rate=… vary the load",
    )
    add_knob_option(group, required=False)
    add_constraint_option(group)
    group.add_argument(
        "--points", type=int, help=f"values of a range that is swept (default {DEFAULT_POINTS})"
    )
    group.add_argument("--repeat", type=int, help="measurements per value (default 1)")
    group.add_argument(
        "--study", type=study_name, metavar="NAME",
        help="name to store under; an existing sweep is gone on with",
    )  # fmt: skip
    add_measuring_options(group)
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.cli.run_sweep import run_sweep

    return run_sweep(args)
