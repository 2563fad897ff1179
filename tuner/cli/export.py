"""`tuner export`: a run's requests as JSON lines, Parquet or GuideLLM's report, or as a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import EXIT_DONE, add_database_option, output_file
from tuner.errors import UserError
from tuner.units import count_text

if TYPE_CHECKING:
    from tuner.exchange.run import Run

NAME = "export"
HELP = "write a run's requests as JSON lines, Parquet or GuideLLM's report, or a run as HTML page"

FORMATS = ("jsonl", "parquet", "guidellm", "html")
BY_ENDING = {".jsonl": "jsonl", ".parquet": "parquet", ".html": "html", ".htm": "html"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id (see `tuner runs`), STUDY:best or a file")
    parser.add_argument(
        "--format", choices=FORMATS,
        help="default: by the ending of --output, else jsonl; times are seconds since its start",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=output_file, metavar="FILE", help="default: standard output"
    )
    add_database_option(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.cli.outputs import check_output, write_whole
    from tuner.exchange.find import Runs, file_of

    path = Path(args.output) if args.output and args.output != "-" else None
    form = args.format or (BY_ENDING.get(path.suffix.lower()) if path else None) or "jsonl"
    if form == "parquet" and path is None:
        raise UserError("Parquet is no text: give --output FILE")
    if path is not None:
        check_output("--output", args.output, args.database, [file_of(args.run)])
    with Runs(args.database) as runs:
        found = runs.one(args.run)
    if path is None:
        write(found, form, None)
        return EXIT_DONE
    write_whole(path, lambda part: write(found, form, part))
    print(f"{found.name}: {count_text(found.count, 'request')} in {path} ({form})", file=sys.stderr)
    return EXIT_DONE


def write(found: Run, form: str, path: Path | None) -> None:
    """In the form, to the file or standard output."""
    if form == "parquet" and path is not None:
        from tuner.exchange.tables import write_parquet

        return write_parquet(found, path)
    out = sys.stdout.buffer if path is None else path.open("wb")
    try:
        if form == "html":
            from tuner.report.html import render_run_html

            out.write(render_run_html(found).encode())
        elif form == "guidellm":
            from tuner.exchange.guidellm_out import write_guidellm

            write_guidellm(found, out)
        else:
            from tuner.exchange.tables import write_jsonl

            write_jsonl(found, out)
        out.flush()
    finally:
        if path is not None:
            out.close()
    return None
