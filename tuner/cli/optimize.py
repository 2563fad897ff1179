"""`tuner optimize`: baseline, sweep, joint search and confirmation within one budget."""

from __future__ import annotations

import argparse

from tuner.cli.common import add_database_option, add_load_options, add_output_options
from tuner.cli.search_options import add_knob_option, add_measuring_options
from tuner.cli.targets import add_tuned_target_options

NAME = "optimize"
HELP = "find the knob settings that serve most while the SLOs hold, and confirm the gain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tuned_target_options(parser)
    add_load_options(parser)
    group = parser.add_argument_group("search")
    add_knob_option(group, required=False)
    group.add_argument(
        "--budget",
        metavar="TIME|TRIALS",
        help='for the whole study, all sittings together: "5m", "90s" or "20 trials" (default 10m)',
    )
    goal = group.add_mutually_exclusive_group()
    goal.add_argument(
        "--maximize", metavar="METRIC", help="e.g. output_tps, the default, or goodput"
    )
    goal.add_argument("--minimize", metavar="METRIC", help='e.g. "ttft_p95"')
    group.add_argument(
        "--sampler",
        choices=("auto", "gp", "tpe", "random"),
        default="auto",
        help="auto: Gaussian process where torch is installed, else TPE",
    )
    group.add_argument(
        "--calibrate",
        action="store_true",
        help="first size the load (at most a minute) so that the SLOs bind on this machine",
    )
    group.add_argument(
        "--apply",
        action="store_true",
        help="leave the confirmed best configuration on the server (default: restore its own)",
    )
    group.add_argument(
        "--study", metavar="NAME", help="name to store under; an existing study is resumed"
    )
    add_measuring_options(group)
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.cli.run_optimize import run_optimize

    return run_optimize(args)
