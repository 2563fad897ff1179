"""`tuner rejudge`: what another SLO says of stored runs; nothing is sent or overwritten."""

from __future__ import annotations

import argparse

from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    add_database_option,
    add_output_options,
    print_json,
    print_lines,
)
from tuner.errors import UserError

NAME = "rejudge"
HELP = "judge stored runs by another SLO, without a new measurement"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN",
        help="ids (see `tuner runs`), a study, STUDY:best, or files; each judged by itself",
    )  # fmt: skip
    parser.add_argument(
        "--slo", action="append", default=[], metavar='"METRIC<BOUND"', required=True,
        help='e.g. "ttft_p95<300ms"; may be given several times; keep the quotes',
    )  # fmt: skip
    parser.add_argument("--price-per-hour", type=float, metavar="$", help="for cost_per_mtok")
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    """0: no run is shown to miss the SLOs; 1: one is."""
    import math

    from tuner.exchange.find import Runs
    from tuner.exchange.judging import judged
    from tuner.report.rejudge import rejudge_dict, rejudge_lines
    from tuner.slo import parse_slos

    slos = parse_slos(args.slo)
    if args.price_per_hour is not None and not 0 < args.price_per_hour < math.inf:
        raise UserError(f"--price-per-hour must be more than 0, got {args.price_per_hour:g}")
    results = []
    with Runs(args.database) as runs:
        for text in args.runs:
            results += [
                (found, judged([found], slos, args.price_per_hour))
                for found in runs.whole_study(text) or runs.side(text)
            ]
    if args.json:
        print_json(rejudge_dict(results, slos))
    else:
        print_lines(rejudge_lines(results, slos))
    failed = any(result.verdict.state == "fail" for _, result in results)
    return EXIT_ANSWER_IS_NO if failed else EXIT_DONE
