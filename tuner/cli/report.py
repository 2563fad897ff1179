"""`tuner report`: what a study of `optimize`, `sweep` or `verify` has found, in the terminal, as a
web page or as a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import (
    EXIT_DONE,
    ProgressLine,
    add_database_option,
    add_output_options,
    output_file,
    print_json,
    print_lines,
)
from tuner.errors import UserError
from tuner.units import count_text

if TYPE_CHECKING:
    from tuner.exchange.bundle import StoredStudy
    from tuner.report.any_study import Report

NAME = "report"
HELP = "show what a study of optimize, sweep or verify has found, in text, as a page or as a bundle"

UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What parts of a bundle that do not fit each other come to while it is judged again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", nargs="?", metavar="STUDY", help="name (see `tuner studies`)")
    parser.add_argument(
        "--from-bundle", metavar="FILE", help="read a bundle instead: no database is needed"
    )
    parser.add_argument(
        "--html", type=output_file, metavar="FILE", help="write it as one self-contained web page"
    )
    parser.add_argument(
        "--bundle", type=output_file, metavar="FILE",
        help="write the whole study with its raw records as JSON; packed when FILE ends in .gz",
    )  # fmt: skip
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from storage import open_database
    from tuner.cli.outputs import check_output
    from tuner.exchange.bundle import of_database, read_bundle

    if (args.study is None) == (args.from_bundle is None):
        raise UserError("name a STUDY of the database, or give --from-bundle FILE: one of the two")
    if args.from_bundle is not None and args.bundle is not None:
        raise UserError("--bundle writes what --from-bundle reads: copy the file")
    if args.html is not None:
        check_output("--html", args.html, args.database, from_bundle=args.from_bundle)
    if args.bundle is not None:
        check_output("--bundle", args.bundle, args.database, html=args.html)
    if args.from_bundle is not None:
        path = Path(args.from_bundle)
        return _show(args, _fitting(read_bundle(path), path.name))
    with open_database(args.database, read_only=True) as database:
        return _show_stored(args, of_database(database, args.study))


def report_to(path: str, database: str, study: str) -> None:
    """The page of a stored study. Raises UserError, StorageError."""
    from storage import open_database
    from tuner.exchange.bundle import of_database
    from tuner.report.any_study import report_of

    with open_database(database, read_only=True) as opened:
        _write_page(report_of(of_database(opened, study)), path)


def _fitting(stored: StoredStudy, name: str) -> Report:
    """Each part of a bundle is checked as it is read; that parts fit each other shows here."""
    from tuner.report.any_study import report_of

    try:
        return report_of(stored)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    except UNFIT as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{name} is damaged, or of another version ({told})") from error


def _show_stored(args: argparse.Namespace, stored: StoredStudy) -> int:
    from tuner.cli.outputs import write_whole
    from tuner.exchange.bundle import write_bundle
    from tuner.report.any_study import report_of

    if args.bundle is not None:
        packed = args.bundle.endswith(".gz")
        write_whole(Path(args.bundle), lambda part: write_bundle(stored, part, packed=packed))
        told = f"{stored.study.name}: {count_text(len(stored.measurements), 'measurement')}"
        ProgressLine(quiet=args.quiet).note(f"{told} in {args.bundle}")
        if args.html is None and not args.json:
            return EXIT_DONE
    return _show(args, report_of(stored))


def _show(args: argparse.Namespace, report: Report) -> int:
    from tuner.report.any_study import dict_of, lines_of

    if args.html is not None:
        _write_page(report, args.html)
        told = f"{report.study.name}: {count_text(len(report.outcomes), 'measurement')}"
        ProgressLine(quiet=args.quiet).note(f"{told} on the page {args.html}")
    if args.json:
        print_json(dict_of(report))
    elif args.html is None:
        print_lines(lines_of(report))
    return EXIT_DONE


def _write_page(report: Report, path: str) -> None:
    from tuner.cli.outputs import write_text
    from tuner.report.any_study import page_of

    page = page_of(report)
    write_text(Path(path), page)
