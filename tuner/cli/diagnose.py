"""`tuner diagnose`: watch a server's metrics for a while and say what binds it.

With --url the embedded scraper watches for --watch-for seconds first, because a rate takes two
scrapes at least; a Prometheus has its history, so that the answer comes at once. A longer --window
is answered from the history that a dashboard kept, where --database holds one.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.common import EXIT_ANSWER_IS_NO, EXIT_CRITICAL, EXIT_DONE, add_output_options, pairs

if TYPE_CHECKING:
    from storage.sources.base import MetricSource, Reading
    from tuner.budget.live import Budgets
    from tuner.diagnosis import Diagnosis

EXIT_CODES = {"warning": EXIT_ANSWER_IS_NO, "critical": EXIT_CRITICAL}
"""By severity; 0 where nothing fires."""

NAME = "diagnose"
HELP = "say what binds a running server and which knob would move it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("target (one of --url, --prometheus)")
    one = group.add_mutually_exclusive_group(required=True)
    one.add_argument(
        "--url", action="append", metavar="URL",
        help="base URL of a running server, http://HOST:PORT; given several times, its replicas",
    )  # fmt: skip
    one.add_argument("--prometheus", metavar="URL", help="a Prometheus that scrapes the server")
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only series with this label, with --prometheus e.g. job=vllm; with --url one that "
        "the server itself gives them, e.g. model_name=llama",
    )
    group.add_argument(
        "--set", action="append", default=[], metavar="KNOB=VALUE", dest="settings",
        help="a setting the server does not tell, e.g. max_num_seqs=64",
    )  # fmt: skip
    group.add_argument(
        "--settings", metavar="FILE", dest="settings_file",
        help="such settings of a file: the words the server is started with, or TOML",
    )  # fmt: skip
    group = parser.add_argument_group("judgement")
    group.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar='"METRIC<BOUND"',
        help='e.g. "ttft_p95<500ms", may be given several times; keep the quotes',
    )
    group.add_argument(
        "--burn",
        action="store_true",
        help="also say how fast the SLOs' error budgets burn, over 5 min to 3 d: with "
        "--prometheus, or --database for the history kept beside it",
    )
    group.add_argument("--thresholds", metavar="FILE", help="TOML file that overrides thresholds")
    group.add_argument(
        "--peak",
        action="append",
        default=[],
        metavar="flops=N,bandwidth=N",
        help="the device's peak FLOP/s and bytes/s, in place of what the engine tells",
    )
    group.add_argument(
        "--window",
        type=seconds,
        metavar="60s",
        help="what rates and quantiles cover (default 60s; with --url as long as was watched)",
    )
    group.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="1s",
        help="with --url: time between scrapes (default 1s)",
    )
    group.add_argument(
        "--watch-for",
        type=seconds,
        default=15.0,
        metavar="15s",
        help="with --url: how long to watch before the answer (default 15s)",
    )
    group.add_argument(
        "--watch",
        action="store_true",
        help="go on until Ctrl-C; a node then fires after 2 evaluations and clears "
        "after 3; the exit code is the last evaluation's",
    )
    parser.add_argument(
        "--database",
        metavar="PATH|URL",
        help="runs kept by `tuner bench`: the newest one of each --url tells what clients saw; and "
        "the history that the dashboard keeps beside it, for a --window longer than was watched "
        "(default: none, so that node 3e cannot be told)",
    )
    parser.add_argument(
        "--store",
        metavar="PATH|URL",
        help="keep firing findings in this database (default: kept nowhere)",
    )
    parser.add_argument("--verbose", action="store_true", help="also print the queries asked")
    add_output_options(parser)


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def seconds(text: str) -> float:
    """A duration such as 15, 15s, 500ms or 2m in seconds."""
    number, unit = text.rstrip("msh"), text[len(text.rstrip("msh")) :]
    try:
        value = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        value = math.nan
    if not (0 < value <= 86_400):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 15s, 500ms or 2m")
    return value


def run(args: argparse.Namespace) -> int:
    from storage.sources import open_source
    from storage.sources.targets import check_labels
    from tuner.diagnosis.settings import checked
    from tuner.diagnosis.settings_file import file_settings
    from tuner.diagnosis.thresholds import DEFAULT, device_peak, load_thresholds
    from tuner.errors import UserError

    thresholds = load_thresholds(args.thresholds) if args.thresholds else DEFAULT
    if args.peak:
        thresholds = replace(thresholds, device=device_peak(args.peak))
    slos = None
    if args.slo:
        from tuner.slo import parse_slos

        slos = parse_slos(args.slo)
    elif args.burn:
        raise UserError('--burn needs the SLOs whose budgets it is about: --slo "ttft_p95<500ms"')
    settings = file_settings(Path(args.settings_file)) if args.settings_file else {}
    settings |= checked(pairs(args.settings, "--set", "KNOB=VALUE"))
    labels = pairs(args.label, "--label", "NAME=VALUE")
    check_labels(args.url or (), labels)
    _check_databases(args)
    source = open_source(
        url=args.url,
        prometheus=args.prometheus,
        scrape_interval_s=args.interval,
        labels=labels or None,
        database=args.database,
        keep=False,
    )
    try:
        return _evaluate(args, source, slos, thresholds, settings)
    finally:
        source.close()


def _check_databases(args: argparse.Namespace) -> None:
    """Before the server is watched. Raises StorageError."""
    from storage.location import check, parse

    _client_side(args)
    if args.store:
        check(parse(args.store))


def _evaluate(
    args: argparse.Namespace,
    source: MetricSource,
    slos: Any,
    thresholds: Any,
    settings: dict[str, str],
) -> int:
    from tuner.budget.live import read_budgets
    from tuner.diagnosis import History, asked_quantiles, collect, diagnose
    from tuner.diagnosis.server_info import info_by_instance
    from tuner.diagnosis.stored import store

    target = args.prometheus or ", ".join(args.url)
    _require_reachable(source, target, args.label if args.url else ())
    if args.url:
        _watch_first(args, source, target)
    history = History() if args.watch else None
    quantiles = asked_quantiles(slos.clauses if slos is not None else ())
    diagnosis = None
    try:
        while True:
            window_s = args.window or 60.0
            told = info_by_instance(args.url or ())  # each time: knobs may have moved
            signals = collect(
                source, window_s=window_s, known=settings, info_by_instance=told,
                quantiles=quantiles, target=target, client=_client_side(args),
            )  # fmt: skip
            diagnosis = diagnose(signals, slos, history, thresholds=thresholds)
            _show(args, diagnosis, read_budgets(source, slos) if args.burn else None)
            if args.store:
                store(args.store, diagnosis)
            if not args.watch:
                break
            time.sleep(max(source.scrape_interval_s, 5.0))
    except KeyboardInterrupt:
        if diagnosis is None:
            raise
    return EXIT_CODES.get(diagnosis.severity, EXIT_DONE)


def _client_side(args: argparse.Namespace) -> dict[str, Reading]:
    """What clients saw, where a database with runs of the same servers is named."""
    if not args.database or not args.url:
        return {}
    from storage import open_database
    from storage.location import only_history
    from tuner.diagnosis.client_side import pooled_client_readings

    if only_history(args.database):
        return {}
    database = open_database(args.database, read_only=True)
    try:
        return pooled_client_readings(database, args.url, time.time())
    finally:
        database.close()


def _require_reachable(source: MetricSource, target: str, labels: Sequence[str]) -> None:
    from tuner.diagnosis.registry import SIGNALS, dialect_of
    from tuner.errors import UserError

    status = source.status()
    if not status.up:
        raise UserError(f"{target} gives no metrics: {status.reason or 'it does not answer'}")
    if dialect_of(source.names()) is None:
        raise UserError(
            f"{target} answers, but exports no slotune:, vllm: or sglang: metric; "
            "give the URL of an inference server, or a Prometheus that scrapes one"
        )
    running = SIGNALS["running"]
    if labels and not any(source.gauge(name).ok for name in (*running.vllm, *running.sglang)):
        raise UserError(
            f"{target} answers, but no engine's series there has the label {', '.join(labels)}"
        )


def _watch_first(args: argparse.Namespace, source: MetricSource, target: str) -> None:
    """Wait until the scraper has watched long enough, saying so."""
    from tuner.cli.common import ProgressLine

    span_s = max(args.watch_for, 4 * args.interval)
    line = ProgressLine(quiet=args.quiet)
    end_s = time.monotonic() + span_s
    while (left_s := end_s - time.monotonic()) > 0:
        line.update(f"watching {target}: {left_s:.0f} s of {span_s:.0f} s left")
        time.sleep(min(1.0, left_s))
        _require_reachable(source, target, args.label)
    line.clear()


def _show(args: argparse.Namespace, diagnosis: Diagnosis, budgets: Budgets | None) -> None:
    from tuner.budget import render as budget_text
    from tuner.cli.common import print_json
    from tuner.diagnosis import render

    if args.json:
        burns = {} if budgets is None else {"error_budgets": budget_text.as_dict(budgets)}
        print_json(diagnosis.as_dict() | burns)
        return
    url = args.url[0] if args.url else ""  # of several one is enough to prove it on
    text = render(diagnosis, colour=sys.stdout.isatty(), verbose=args.verbose, url=url)
    print(text, flush=True)
    if budgets is not None:
        print(f"\n{budget_text.render(budgets)}", flush=True)
    if args.watch:
        print(flush=True)
