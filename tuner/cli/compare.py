"""`tuner compare`: is B better than A? Figure by figure, with intervals."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    add_database_option,
    add_output_options,
    print_json,
)

NAME = "compare"
HELP = "compare two runs, two configurations of a study, or files: is B better than A?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = "id or ids (see `tuner runs`; 3,5,7 are one side), STUDY:best, STUDY:baseline or FILE"
    parser.add_argument("a", metavar="A", help=names)
    parser.add_argument("b", metavar="B", help="the same, measured against A")
    parser.add_argument(
        "--slo", action="append", default=[], metavar='"METRIC<BOUND"',
        help="what matters: its figures decide the exit code, 1 when B is shown to be worse in one "
        "of them or in output_tps (without: output_tps, ttft_p95, itl_p95, e2e_p95, error_rate)",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="also write the comparison as a web page")
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    """0: B is not shown to be worse in a figure that decides; 1: it is."""
    from tuner.exchange.find import Runs, aligned
    from tuner.figures.comparison import compare_runs
    from tuner.report.compare import (
        Compared,
        compare_dict,
        compare_lines,
        deciding_keys,
        keys_of,
        warnings,
    )
    from tuner.slo import parse_slos

    slos = parse_slos(args.slo)
    with Runs(args.database) as runs:
        a, b = aligned(runs.side(args.a), runs.side(args.b))
    unknown = {metric: why for found in (*a, *b) for metric, why in found.unknown.items()}
    sides = [[(found.records, found.window_s) for found in side] for side in (a, b)]
    figures = compare_runs(sides[0], sides[1], keys_of(slos, unknown), slos)
    compared = Compared(args.a, args.b, a, b, figures, deciding_keys(slos), warnings(a, b))
    if args.html:
        from tuner.cli.export import write_whole
        from tuner.report.html import render_compare_html

        page = render_compare_html(compared, slos)
        write_whole(Path(args.html), lambda part: part.write_text(page, encoding="utf-8"))
    if args.json:
        print_json(compare_dict(compared))
    else:
        print("\n".join(compare_lines(compared)))
    return EXIT_ANSWER_IS_NO if compared.worse else EXIT_DONE
