"""`tuner compare`: is B better than A? Figure by figure, with intervals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    add_database_option,
    add_output_options,
    output_file,
    print_json,
    print_lines,
)

if TYPE_CHECKING:
    from tuner.exchange.run import Run
    from tuner.report.compare import Compared
    from tuner.slo import SloSet

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
    parser.add_argument(
        "--html", type=output_file, metavar="FILE", help="also write the comparison as a web page"
    )
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    """0: B is not shown to be worse in a figure that decides; 1: it is."""
    from tuner.cli.outputs import check_output
    from tuner.exchange.find import Runs, aligned, file_of
    from tuner.report.compare import compare_dict, compare_lines
    from tuner.slo import parse_slos

    slos = parse_slos(args.slo)
    if args.html is not None:
        check_output("--html", args.html, args.database, [file_of(args.a), file_of(args.b)])
    with Runs(args.database) as runs:
        a, b = runs.side(args.a), runs.side(args.b)
    each = [(load, _compared(args, slos, *aligned(*sides))) for load, sides in _by_load(args, a, b)]
    if args.html:
        _write_page(args, slos, each)
    known = {run.workload for _, one in each for run in (*one.a, *one.b)}
    alone = list(dict.fromkeys(run.workload for run in (*a, *b) if run.workload not in known))
    if args.json and not each[0][0]:
        print_json(compare_dict(each[0][1]))
    elif args.json:
        loads = [{"load": load} | compare_dict(one) for load, one in each]
        print_json({"loads": loads, "not_compared": alone})
    else:
        heads = [f"load {load}" if load else "" for load, _ in each]
        texts = ["\n".join(compare_lines(one)) for _, one in each]
        told = zip(heads, texts, strict=True)
        print_lines(["\n\n".join(f"{head}\n{text}".lstrip() for head, text in told)])
        for load in alone:
            print_lines([f"not compared: load {load}, under which only one side was measured"])
    return EXIT_ANSWER_IS_NO if any(one.worse for _, one in each) else EXIT_DONE


def _by_load(
    args: argparse.Namespace, a: Sequence[Run], b: Sequence[Run]
) -> list[tuple[str, tuple[list[Run], list[Run]]]]:
    """The sides as they are, or where one was measured under several loads, both under each load
    that they share: what different loads cost is no figure taken together. Raises UserError."""
    from tuner.errors import UserError

    loads = [list(dict.fromkeys(run.workload for run in side)) for side in (a, b)]
    if max(map(len, loads)) == 1 or any("" in side for side in loads):
        return [("", (list(a), list(b)))]
    shared = [load for load in loads[0] if load in loads[1]]
    if not shared:
        under = [" and ".join(side) for side in loads]
        raise UserError(
            f"{args.a} was measured under {under[0]}, {args.b} under {under[1]}: no load is common "
            "to both; name runs by their ids (`tuner runs`)"
        )
    return [
        (load, ([r for r in a if r.workload == load], [r for r in b if r.workload == load]))
        for load in shared
    ]


def _compared(
    args: argparse.Namespace, slos: SloSet, a: Sequence[Run], b: Sequence[Run]
) -> Compared:
    from tuner.figures.comparison import compare_runs
    from tuner.report.compare import Compared, deciding_keys, keys_of, warnings

    unknown = {metric: why for found in (*a, *b) for metric, why in found.unknown.items()}
    sides = [[(found.records, found.window_s) for found in side] for side in (a, b)]
    figures = compare_runs(sides[0], sides[1], keys_of(slos, unknown), slos)
    return Compared(args.a, args.b, a, b, figures, deciding_keys(slos), warnings(a, b))


def _write_page(
    args: argparse.Namespace, slos: SloSet, each: Sequence[tuple[str, Compared]]
) -> None:
    from tuner.cli.outputs import write_text
    from tuner.errors import UserError
    from tuner.report.html import render_compare_html

    if len(each) > 1:
        raise UserError(
            f"--html shows one load, and these sides share {len(each)}: name the runs of one by "
            "their ids (`tuner runs`)"
        )
    page = render_compare_html(each[0][1], slos)
    write_text(Path(args.html), page)
