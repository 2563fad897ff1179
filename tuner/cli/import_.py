"""`tuner import`: runs of other load generators, kept and judged like our own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.common import (
    EXIT_DONE,
    add_database_option,
    add_output_options,
    print_json,
    print_lines,
)
from tuner.errors import UserError

if TYPE_CHECKING:
    from tuner.exchange.run import Run

NAME = "import"
HELP = "keep runs of GuideLLM, `vllm bench serve` or `tuner export` in the database"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE",
        help="GuideLLM's JSON report, what `vllm bench serve --save-result --save-detailed` "
        "writes, or jsonl or parquet of `tuner export`",
    )  # fmt: skip
    parser.add_argument(
        "--slo", action="append", default=[], metavar='"METRIC<BOUND"',
        help='judge by it, e.g. "ttft_p95<500ms"; keep the quotes',
    )  # fmt: skip
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from storage import open_database
    from tuner.exchange.judging import judged
    from tuner.exchange.read import read_file
    from tuner.exchange.run import store
    from tuner.report.runs import run_lines
    from tuner.slo import parse_slos

    slos = parse_slos(args.slo)
    found = read_file(Path(args.file))
    if slos:
        found = [
            replace(run, slos=str(slos), verdict=judged([run], slos).verdict.as_dict())
            for run in found
        ]
    try:
        with open_database(args.database) as database:
            kept = [replace(run, run_id=store(database, run)) for run in found]
    except ValueError as error:
        raise UserError(f"{args.file}: {error}") from error
    if args.json:
        print_json([_as_dict(run) for run in kept])
    else:
        print_lines([line for run in kept for line in run_lines(run)])
        ids = " ".join(str(run.run_id) for run in kept)
        print(f"kept as run {ids}" if len(kept) == 1 else f"kept as runs {ids}")
    return EXIT_DONE


def _as_dict(run: Run) -> dict[str, Any]:
    from tuner.exchange.run import header

    return {"run": run.run_id, **header(run)}
