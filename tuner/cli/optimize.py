"""`tuner optimize`: baseline, sweep, joint search and confirmation within one budget."""

from __future__ import annotations

import argparse

from tuner.cli.common import (
    add_database_option,
    add_load_options,
    add_output_options,
    output_file,
    study_name,
)
from tuner.cli.executor_options import add_executor_options
from tuner.cli.search_options import add_constraint_option, add_knob_option, add_measuring_options
from tuner.cli.targets import add_tuned_target_options
from tuner.search.options import SAMPLERS

NAME = "optimize"
HELP = "find the knob settings that serve most while the SLOs hold, and confirm the gain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tuned_target_options(parser)
    add_load_options(parser, several=True)
    group = parser.add_argument_group("search")
    add_knob_option(group, required=False)
    add_constraint_option(group)
    group.add_argument(
        "--budget",
        metavar="TIME|TRIALS",
        help='for the whole study, all sittings together: "5m", "90s" or "20 trials" (default 10m)',
    )
    group.add_argument(
        "--maximize",
        action="append",
        default=[],
        metavar="METRIC",
        help="e.g. output_tps, the default, goodput, or capacity: the highest load that meets "
        "every SLO; several objectives (at most 3) give a Pareto front",
    )
    group.add_argument(
        "--minimize",
        action="append",
        default=[],
        metavar="METRIC",
        help='e.g. "ttft_p95" or cost_per_mtok',
    )
    group.add_argument(
        "--price-per-hour", type=_price, metavar="$", help="of the server, for cost_per_mtok"
    )
    group.add_argument(
        "--sampler",
        choices=SAMPLERS,
        default="auto",
        help="auto: Gaussian process where torch is installed, else TPE (several objectives: "
        "NSGA-II)",
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
        "--study",
        type=study_name,
        metavar="NAME",
        help="name to store under; an existing study is resumed, or shared with the workers that "
        "are at it now, each with a server of its own",
    )
    add_measuring_options(group)
    add_executor_options(parser)
    add_database_option(parser)
    add_output_options(parser)
    parser.add_argument(
        "--html", type=output_file, metavar="FILE",
        help="at the end also write what `tuner report` shows, as a page",
    )  # fmt: skip


def _price(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be more than 0 and less than a million, got {text}")
    return value


def run(args: argparse.Namespace) -> int:
    from tuner.cli.outputs import check_output
    from tuner.cli.report import report_to
    from tuner.cli.run_optimize import run_optimize

    if args.html is not None:
        # before the study, not after it
        check_output("--html", args.html, args.database, [args.quality])
    ended = run_optimize(args)
    if args.html is not None:
        report_to(args.html, args.database, ended.study)
    return ended.exit_code
