"""`tuner quality`: what share of a task's questions a running server answers rightly."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    ProgressLine,
    add_output_options,
    add_target_options,
    print_json,
    print_lines,
)
from tuner.errors import UserError

if TYPE_CHECKING:
    from tuner.slo import SloSet

NAME = "quality"
HELP = "put a task's questions to a running server: its accuracy, with an interval"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target_options(parser, url_required=True)
    group = parser.add_argument_group("check")
    group.add_argument(
        "--task", required=True, metavar="FILE", help="JSON lines of items, see docs/quality.md"
    )
    group.add_argument("--limit", type=int, metavar="N", help="the first N items only")
    group.add_argument(
        "--concurrency", type=int, default=8, metavar="N", help="items at once (default 8)"
    )
    group.add_argument(
        "--by-length", action="store_true",
        help="judge --slo by the likelihood per character of a choice, not by the whole",
    )  # fmt: skip
    group.add_argument(
        "--timeout", default="2m", help="an item that takes longer has failed (default %(default)s)"
    )
    group.add_argument(
        "--slo", action="append", default=[], metavar='"accuracy>=SHARE"',
        help='what must hold, e.g. "accuracy>=0.4" or "accuracy>=40%%"; keep the quotes',
    )  # fmt: skip
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.endpoint import Endpoint, base_url
    from tuner.quality import read_task, run_task
    from tuner.report.quality import quality_lines
    from tuner.slo import parse_slos
    from tuner.slo.judge import by_interval
    from tuner.units import parse_duration_s

    for flag, value in (("--limit", args.limit), ("--concurrency", args.concurrency)):
        if value is not None and value < 1:
            raise UserError(f"{flag} must be at least 1, got {value}")
    timeout_s = parse_duration_s(args.timeout, "--timeout")
    slos = _accuracy_only(parse_slos(args.slo))
    task = read_task(Path(args.task)).first(args.limit)
    endpoint = Endpoint(base_url(args.url), args.model or "", args.api_key).probe()
    line = ProgressLine(quiet=args.quiet)
    result = run_task(
        endpoint, task, concurrency=args.concurrency, timeout_s=timeout_s,
        on_item=lambda done, total: line.update(f"{done} of {total} items"),
    )  # fmt: skip
    line.clear()
    judged = result.accuracy_by_length if args.by_length else result.accuracy
    verdicts = [by_interval(clause, judged) for clause in slos.clauses]
    if args.json:
        about = {"url": endpoint.base_url, "model": endpoint.model}
        print_json(about | result.as_dict() | {"clauses": [one.as_dict() for one in verdicts]})
    else:
        print_lines(quality_lines(endpoint, result, verdicts))
    failed = not judged.measured or any(verdict.state == "fail" for verdict in verdicts)
    return EXIT_ANSWER_IS_NO if failed else EXIT_DONE


def _accuracy_only(slos: SloSet) -> SloSet:
    for clause in slos.clauses:
        if clause.metric != "accuracy":
            raise UserError(
                f"--slo {clause.text!r}: tuner quality measures accuracy alone; for the rest use "
                "tuner bench"
            )
    return slos
