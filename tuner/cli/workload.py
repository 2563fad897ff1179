"""`tuner workload`: look at what a --workload text will send, or record one from real traffic."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tuner.cli.common import EXIT_DONE, ProgressLine, output_file, print_json, print_lines
from tuner.errors import UserError
from tuner.units import count_text

if TYPE_CHECKING:
    from tuner.workload.record_metrics import Recorded

NAME = "workload"
HELP = "show what a workload will send, or record one from an engine's metrics or a proxy's log"

DEFAULT_WINDOW = "15m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    show = actions.add_parser(
        "show", help="draw lengths and arrivals of a workload; without one: the presets and keys"
    )
    show.add_argument("text", nargs="?", metavar="TEXT", help='e.g. "chat,rate=1..10"')
    show.add_argument("--seed", type=int, default=0, help="seed of what is drawn (default 0)")
    show.add_argument(
        "--sessions", type=int, default=2000, metavar="N",
        help="how many sessions are drawn (default %(default)s)",
    )  # fmt: skip
    show.add_argument(
        "--duration",
        metavar="TIME",
        help="sending time of the arrivals (default 60s, or until its profile or trace ends)",
    )
    show.add_argument("--json", action="store_true", help="print the result as JSON")
    record = actions.add_parser("record", help="build a workload from real traffic")
    one = record.add_mutually_exclusive_group(required=True)
    one.add_argument("--url", help="an engine: its lengths since it started, or of --window")
    one.add_argument("--prometheus", metavar="URL", help="a Prometheus that scrapes the engine")
    one.add_argument(
        "--proxy-log", metavar="FILE", help="a log of requests: JSON lines, CSV or an access log"
    )
    record.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE",
        help="with --prometheus: only series with this label, e.g. job=vllm",
    )  # fmt: skip
    record.add_argument(
        "--window", metavar="15m",
        help="with --prometheus: how far back (default 15m); with --url: watch it that long",
    )  # fmt: skip
    record.add_argument(
        "--output", type=output_file, metavar="FILE",
        help="with --proxy-log: the trace to write (default FILE.csv)",
    )  # fmt: skip
    record.add_argument("--time-column", default="", help="with --proxy-log: its name of the time")
    record.add_argument("--prompt-column", default="", help="… of the prompt tokens")
    record.add_argument("--output-column", default="", help="… of the output tokens")
    record.add_argument("--json", action="store_true", help="print the result as JSON")
    record.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(args: argparse.Namespace) -> int:
    if args.action == "show":
        return _show(args)
    return _record_log(args) if args.proxy_log else _record_metrics(args)


def _show(args: argparse.Namespace) -> int:
    from tuner.units import parse_duration_s
    from tuner.workload import parse_workload
    from tuner.workload.show import lines, picture, shown_s

    if args.text is None:
        return _show_presets(as_json=args.json)
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, got {args.seed}")
    if not 1 <= args.sessions <= 1_000_000:
        raise UserError(f"--sessions must be 1 to 1000000, got {args.sessions}")
    workload = parse_workload(args.text)
    given = args.duration is not None
    duration_s = parse_duration_s(args.duration, "--duration") if given else shown_s(workload)
    shown = picture(workload, args.seed, args.sessions, duration_s)
    if args.json:
        print_json(shown.as_dict())
    else:
        print_lines(lines(shown))
    return EXIT_DONE


def _show_presets(*, as_json: bool) -> int:
    from dataclasses import asdict

    from tuner.workload.grammar import DEFAULT, KEYS
    from tuner.workload.presets import TABLE, table_lines

    if as_json:
        print_json({"presets": [asdict(preset) for preset in TABLE], "keys": KEYS})
        return EXIT_DONE
    print("presets")
    print("\n".join(f"  {line}" for line in table_lines()))
    print(f"\nkeys (default: {DEFAULT})")
    print("\n".join(f"  {key + '=':16}{what}" for key, what in KEYS.items()))
    return EXIT_DONE


def _record_metrics(args: argparse.Namespace) -> int:
    from tuner.units import parse_duration_s

    if args.label and not args.prometheus:
        raise UserError("--label needs --prometheus")
    if args.output:
        raise UserError("--output needs --proxy-log: metrics give a text, no trace")
    asked = args.window or (DEFAULT_WINDOW if args.prometheus else None)
    window_s = parse_duration_s(asked, "--window") if asked else None
    made = _recorded(args, window_s)
    if args.json:
        print_json(made.as_dict())
        return EXIT_DONE
    print_lines([made.text])
    span = f"in {made.window_s:.0f} s" if made.window_s is not None else "since the engine's start"
    print(f"\nfrom {made.samples} finished requests {span}")
    print_lines([f"- {note}" for note in made.notes])
    return EXIT_DONE


def _recorded(args: argparse.Namespace, window_s: float | None) -> Recorded:
    from storage.sources import open_source
    from tuner.workload.record_metrics import lifetime_source, record, watched_source

    timed = True
    if args.prometheus:
        assert window_s is not None
        source = open_source(prometheus=args.prometheus, labels=_labels(args.label) or None)
        status = source.status()
        if not status.up and not source.names():
            source.close()
            raise UserError(f"{args.prometheus}: {status.reason or 'it does not answer'}")
    elif window_s is None:
        source, window_s, timed = lifetime_source(args.url)
    else:
        line = ProgressLine(quiet=args.quiet)
        source = watched_source(
            args.url, window_s, lambda left_s: line.update(f"watching, {left_s:.0f} s left")
        )
        line.clear()
    try:
        return record(source, window_s, args.prometheus or args.url, timed=timed)
    finally:
        source.close()


def _labels(texts: list[str]) -> dict[str, str]:
    labels = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UserError(f"--label {text!r}: write NAME=VALUE")
        labels[name.strip()] = value.strip()
    return labels


def _record_log(args: argparse.Namespace) -> int:
    from pathlib import Path

    from tuner.workload.columns import Named
    from tuner.workload.record_log import read_log, write_trace
    from tuner.workload.writing import quoted

    if args.label or args.window:
        raise UserError("--label and --window need --prometheus or --url")
    named = Named(prompt=args.prompt_column, output=args.output_column, time=args.time_column)
    log = read_log(args.proxy_log, named)
    path = Path(args.output or f"{args.proxy_log}.csv")
    write_trace(log, path)
    text = f"trace={quoted(str(path))}"
    span_s = log.times_s[-1]
    if args.json:
        print_json({
            "workload": text, "requests": len(log.times_s), "span_s": span_s, "form": log.form,
            "notes": log.notes,
        })  # fmt: skip
        return EXIT_DONE
    print(text)
    requests = count_text(len(log.times_s), "request")
    print(f"\n{log.form}: {requests} over {span_s:.6g} s written to {path}")
    print_lines([f"- {note}" for note in log.notes])
    return EXIT_DONE
