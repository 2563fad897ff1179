"""`tuner lint`: what is wrong with Grafana dashboards and Prometheus rules for LLM servers.

With --url names are held against what the server exports now, else against the tables of vLLM,
SGLang and slotune. Exit code 1 when something is found.
"""

from __future__ import annotations

import argparse
import math

from tuner.cli.common import EXIT_ANSWER_IS_NO, EXIT_DONE, add_output_options, print_lines

NAME = "lint"
HELP = "find dead metrics and wrong queries in Grafana dashboards and Prometheus rules"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="dashboard (JSON) or rules file (YAML)"
    )
    parser.add_argument(
        "--url", help="a running server: a name it does not export now is dead (default: tables)"
    )
    parser.add_argument(
        "--scrape-interval",
        type=_seconds,
        default=15.0,
        metavar="S",
        help="seconds between scrapes of your Prometheus (default 15)",
    )
    add_output_options(parser)


def _seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = math.nan
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 3600")
    return value


def run(args: argparse.Namespace) -> int:
    from storage.sources import scrape_once
    from tuner.cli.common import print_json
    from tuner.lint.catalogue import of_exposition, of_tables, with_recorded
    from tuner.lint.checks import lint
    from tuner.lint.files import read_file
    from tuner.lint.model import Query
    from tuner.units import count_text

    queries: list[Query] = []
    recorded: set[str] = set()
    for path in args.files:
        found, made = read_file(path)
        queries += found
        recorded |= made
    catalogue = of_exposition(scrape_once(args.url), args.url) if args.url else of_tables()
    findings = lint(queries, with_recorded(catalogue, recorded), args.scrape_interval)
    if args.json:
        print_json({"queries": len(queries), "findings": [f.as_dict() for f in findings]})
    else:
        for finding in findings:
            print_lines([finding.text])
        if not args.quiet:
            wrong = count_text(len(findings), "finding")
            asked = count_text(len(queries), "query", "queries")
            print(f"{wrong} in {asked} of {count_text(len(args.files), 'file')}")
    return EXIT_ANSWER_IS_NO if findings else EXIT_DONE
