"""`tuner rules`: Prometheus recording and alert rules out of the SLO line, with unit tests.

With --url names and bucket boundaries are those the server exports now; without it the newest of
--target's: slotune's engine exports vLLM's.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.common import EXIT_DONE, add_output_options, pairs
from tuner.cli.targets import KINDS
from tuner.errors import UserError

if TYPE_CHECKING:
    from tuner.budget.buckets import Exports
    from tuner.diagnosis.registry import Dialect
    from tuner.rules.groups import RuleSet

NAME = "rules"
HELP = "write Prometheus rules and alerts for an SLO: error budget, burn rates, unit tests"

SHORTEST_WINDOW_S = 300
_OWN_LABELS = ("le", "slo", "finished_reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("SLOs")
    group.add_argument(
        "--slo",
        action="append",
        required=True,
        metavar='"METRIC<BOUND"',
        help='e.g. "ttft_p95<500ms"; may be given several times; keep the quotes',
    )
    group.add_argument(
        "--url", help="a running server, whose metrics and bucket boundaries are then used"
    )
    group.add_argument(
        "--target",
        choices=KINDS,
        help="whose metrics the rules read (default: what --url exports, else slotune, which "
        "exports vLLM's)",
    )
    group = parser.add_argument_group("which series")
    group.add_argument("--job", help='only series with job="JOB"')
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only series with this label; may be given several times",
    )
    group.add_argument(
        "--by",
        default="model_name",
        metavar="LABELS",
        help='one SLO per value of these labels, "" for one in all (default %(default)s)',
    )
    group = parser.add_argument_group("alerts")
    group.add_argument(
        "--budget-window",
        default="30d",
        metavar="30d",
        help="what the error budget is spread over; Prometheus must keep as much (default 30d)",
    )
    group.add_argument(
        "--min-events",
        type=int,
        metavar="N",
        help="alert only with so many events in the long window (default: by the budget)",
    )
    group.add_argument(
        "--scrape-interval",
        type=int,
        default=15,
        metavar="S",
        help="seconds between scrapes; no window is shorter than four (default %(default)s)",
    )
    group.add_argument(
        "--alert-label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="added to every alert, e.g. team=inference",
    )
    group = parser.add_argument_group("files")
    group.add_argument(
        "--out", metavar="DIR", help="write slo.rules.yml and slo.test.yml here (default: stdout)"
    )
    group.add_argument("--grafana", metavar="FILE", help="also write a Grafana dashboard (JSON)")
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from tuner.cli.common import print_json
    from tuner.cli.outputs import check_output, write_text
    from tuner.rules.write import rules_text

    rules, left_out = rule_set(args)
    command = command_of(args)
    for text, why in left_out.items():
        print(f"tuner rules: {text} is left out: {why}", file=sys.stderr)
    files = _files(args, rules, command, left_out)
    for number, (option, path, _) in enumerate(files):
        _make_folder(path.parent)
        check_output(option, str(path), own=[earlier for _, earlier, _ in files[:number]])
    for _, path, text in files:
        write_text(path, text)
    written = [path for _, path, _ in files]
    if args.json:
        print_json({"left_out": left_out, "files": [*map(str, written)], **rules.groups()})
    elif not args.out:
        print(rules_text(rules, command, left_out), end="")
    if written and not args.quiet:
        print(f"written: {', '.join(map(str, written))}", file=sys.stderr)
    return EXIT_DONE


def _files(
    args: argparse.Namespace, rules: RuleSet, command: str, left_out: dict[str, str]
) -> list[tuple[str, Path, str]]:
    """(option, path, text) of each that was asked for."""
    from tuner.rules.dashboard import dashboard_text
    from tuner.rules.write import RULES_FILE, TESTS_FILE, rules_text, tests_text

    files = []
    if args.out:
        folder = Path(args.out)
        files.append(("--out", folder / RULES_FILE, rules_text(rules, command, left_out)))
        files.append(("--out", folder / TESTS_FILE, tests_text(rules, command)))
    if args.grafana:
        files.append(("--grafana", Path(args.grafana), dashboard_text(rules)))
    return files


def _make_folder(path: Path) -> None:
    """Raises UserError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error


def rule_set(args: argparse.Namespace) -> tuple[RuleSet, dict[str, str]]:
    """What the options ask for, and why a clause has no rules. Raises UserError, StorageError."""
    from storage.sources.base import MIN_WINDOW_INTERVALS
    from tuner.budget.events import slis
    from tuner.rules.groups import RuleSet
    from tuner.rules.scope import Scope
    from tuner.slo import parse_slos

    slos = parse_slos(args.slo)
    _check(args)
    exported, dialect = _engine(args)
    found, left_out = slis(slos, exported, dialect)
    labels = _labels(args.label, "--label")
    if args.job:
        _check_value(args.job, "--job")
        labels = {"job": args.job, **labels}
    by = tuple(name for name in re.split(r"[,\s]+", args.by) if name and name not in labels)
    _check_names(by, "--by")
    for name in (*by, *labels):
        if name in _OWN_LABELS:
            raise UserError(f"the label {name!r} is the rules' own; choose another")
    stall_s = max(60, MIN_WINDOW_INTERVALS * args.scrape_interval)
    return RuleSet(
        found, Scope(labels, by), args.budget_window, args.min_events, f"{stall_s}s",
        _labels(args.alert_label, "--alert-label"),
    ), left_out  # fmt: skip


def _engine(args: argparse.Namespace) -> tuple[Exports | None, Dialect]:
    """(what --url exports, whose names the rules use). Raises UserError, StorageError."""
    from storage.sources import scrape_once
    from tuner.budget.buckets import of_exposition
    from tuner.diagnosis.registry import DIALECTS, dialect_of

    if not args.url:
        return None, args.target or DIALECTS[0]
    exported = of_exposition(scrape_once(args.url))
    spoken = dialect_of(exported.names)
    if spoken is None:
        raise UserError(
            f"{args.url} exports no slotune:, vllm: or sglang: metric: give the URL of an "
            "inference server"
        )
    if args.target and (args.target == "sglang") != (spoken == "sglang"):
        raise UserError(f"--target {args.target}: {args.url} exports the metrics of {spoken}")
    return exported, spoken


def _check(args: argparse.Namespace) -> None:
    from storage.sources.base import MIN_WINDOW_INTERVALS

    window = re.fullmatch(r"([1-9]\d*)([dw])", args.budget_window)
    if window is None or args.budget_window in ("1d", "3d"):
        raise UserError(f"--budget-window {args.budget_window!r}: write days or weeks, e.g. 30d")
    longest_s = SHORTEST_WINDOW_S // MIN_WINDOW_INTERVALS
    if not 1 <= args.scrape_interval <= longest_s:
        raise UserError(
            f"--scrape-interval {args.scrape_interval}: must be 1 to {longest_s} s, since the "
            f"shortest window, 5 min, must hold {MIN_WINDOW_INTERVALS} scrapes"
        )
    if args.min_events is not None and args.min_events < 1:
        raise UserError(f"--min-events must be at least 1, got {args.min_events}")


def _labels(texts: list[str], flag: str) -> dict[str, str]:
    found = pairs(texts, flag, "NAME=VALUE")
    _check_names(found, flag)
    for name, value in found.items():
        _check_value(value, f"{flag} {name}")
    return found


def _check_names(names: Iterable[str], flag: str) -> None:
    for name in names:
        if not re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII):
            raise UserError(f"{flag} {name!r} is no label name: letters, digits and _ only")
        if name == "__name__":
            raise UserError(f"{flag} {name!r} is the metric's own name; choose another label")


def _check_value(value: str, where: str) -> None:
    """Alerts take their labels and annotations as templates, and the files are lines of text."""
    if "{{" in value:
        raise UserError(f"{where}: its value holds {{{{, which begins a template in an alert")
    if not value.isprintable():
        raise UserError(f"{where}: its value holds what is no printable text: {value!r:.60}")


def command_of(args: argparse.Namespace) -> str:
    """The command that makes the same files, without where they lie."""
    words = ["tuner", "rules"]
    for slo in args.slo:
        words += ["--slo", slo]
    for flag, value, default in (
        ("--url", args.url, None),
        ("--target", args.target, None),
        ("--job", args.job, None),
        ("--by", args.by, "model_name"),
        ("--budget-window", args.budget_window, "30d"),
        ("--min-events", args.min_events, None),
        ("--scrape-interval", args.scrape_interval, 15),
    ):
        if value != default:
            words += [flag, str(value)]
    for flag, values in (("--label", args.label), ("--alert-label", args.alert_label)):
        for value in values:
            words += [flag, value]
    return shlex.join(words)
