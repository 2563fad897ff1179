"""`tuner report`: what a stored study has found, in the terminal, as a web page or as a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import (
    EXIT_DONE,
    add_database_option,
    add_output_options,
    print_json,
)
from tuner.errors import UserError

if TYPE_CHECKING:
    from tuner.exchange.bundle import StoredStudy

NAME = "report"
HELP = "show what a study has found: answer, history, importances, what its SLOs cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", nargs="?", metavar="STUDY", help="name (see `tuner studies`)")
    parser.add_argument(
        "--from-bundle", metavar="FILE", help="read a bundle instead: no database is needed"
    )
    parser.add_argument("--html", metavar="FILE", help="write it as one self-contained web page")
    parser.add_argument(
        "--bundle", metavar="FILE",
        help="write the whole study with its raw records as JSON; packed when FILE ends in .gz",
    )  # fmt: skip
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from storage import open_database
    from tuner.exchange.bundle import of_database, read_bundle

    if (args.study is None) == (args.from_bundle is None):
        raise UserError("name a STUDY of the database, or give --from-bundle FILE: one of the two")
    if args.from_bundle is not None:
        if args.bundle is not None:
            raise UserError("--bundle writes what --from-bundle reads: copy the file")
        return _show(args, read_bundle(Path(args.from_bundle)))
    with open_database(args.database, read_only=True) as database:
        return _show(args, of_database(database, args.study))


def write_page(stored: StoredStudy, path: str) -> None:
    """The study's page. Raises UserError."""
    from tuner.cli.export import write_whole
    from tuner.report.html.study_page import render_study_html
    from tuner.report.study import study_report

    page = render_study_html(study_report(stored))
    write_whole(Path(path), lambda part: part.write_text(page, encoding="utf-8"))


def _show(args: argparse.Namespace, stored: StoredStudy) -> int:
    from tuner.cli.export import write_whole
    from tuner.exchange.bundle import write_bundle
    from tuner.report.study import study_report
    from tuner.report.study_text import study_report_dict, study_report_lines

    if args.bundle is not None:
        packed = args.bundle.endswith(".gz")
        write_whole(Path(args.bundle), lambda part: write_bundle(stored, part, packed=packed))
    if args.html is not None:
        write_page(stored, args.html)
    if args.json:
        print_json(study_report_dict(study_report(stored)))
    elif args.html is None and args.bundle is None:
        print("\n".join(study_report_lines(study_report(stored))))
    return EXIT_DONE
