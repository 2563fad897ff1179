"""`tuner runs`: every stored measurement with its id, or one of them in full."""

from __future__ import annotations

import argparse

from tuner.cli.common import (
    EXIT_DONE,
    add_database_option,
    add_output_options,
    print_json,
    print_lines,
)
from tuner.errors import UserError

NAME = "runs"
HELP = "list stored measurements with their ids, or show one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", type=int, help="run to show (default: list them)")
    parser.add_argument("--study", help="only those of this study")
    parser.add_argument(
        "--last", type=int, default=30, metavar="N",
        help="only the newest N (default %(default)s; 0: all)",
    )  # fmt: skip
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    if args.last < 0:
        raise UserError(f"--last must be 0 or more, got {args.last}")
    return _show(args) if args.id is not None else _list(args)


def _list(args: argparse.Namespace) -> int:
    from storage import open_database
    from tuner.exchange.belonging import study_named
    from tuner.report.runs import list_dict, list_lines

    with open_database(args.database, read_only=True) as database:
        studies = {study.id: study for study in database.list_studies()}
        chosen = None if args.study is None else study_named(database, args.study).id
        rows = database.list_measurements(study_id=chosen)
    shown = rows[-args.last :] if args.last else rows
    if args.json:
        print_json([list_dict(row, studies.get(row.study_id or 0)) for row in shown])
    else:
        print_lines(list_lines(shown, studies, left_out=len(rows) - len(shown)))
    return EXIT_DONE


def _show(args: argparse.Namespace) -> int:
    from tuner.exchange.find import Runs
    from tuner.exchange.run import header
    from tuner.report.runs import run_lines

    with Runs(args.database) as runs:
        found = runs.stored(args.id)
    if args.json:
        print_json({"run": found.run_id, **header(found)})
    else:
        print_lines(run_lines(found))
    return EXIT_DONE
