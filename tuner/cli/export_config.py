"""`tuner export-config`: a study's best configuration in the form that a deployment reads."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.common import EXIT_DONE, add_database_option, output_file
from tuner.printable import shortened

if TYPE_CHECKING:
    from storage import Database

NAME = "export-config"
HELP = "write a study's best configuration as flags, env file, compose override or Helm values"
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
AS = ("slotune", "vllm", "sglang", "env", "compose", "helm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", help="name of a study")
    parser.add_argument(
        "--as",
        dest="form",
        choices=AS,
        default=None,
        help="default: the command line of the engine that was tuned",
    )
    parser.add_argument("--model", help="model to name (default: the one that was tuned)")
    parser.add_argument(
        "--service",
        type=_service,
        metavar="NAME",
        help="compose service or Helm modelSpec (engine, tuned)",
    )
    parser.add_argument(
        "--output", type=output_file, metavar="FILE", help="write there (default: print)"
    )
    add_database_option(parser)


def _service(text: str) -> str:
    """An argparse type: what Compose and Kubernetes take as a name."""
    if not _SERVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{shortened(text)!r} is no service's name: letters, digits, '.', '_' and '-', at most "
            "63 of them"
        )
    return text


def run(args: argparse.Namespace) -> int:
    from storage import open_database
    from tuner.cli.outputs import check_output, write_text
    from tuner.report.flags import Served, exported_text

    if args.output is not None:
        check_output("--output", args.output, args.database)
    with open_database(args.database, read_only=True) as database:
        config, target, doubt = _chosen(database, args.study)
    exported = Served.by(target).exported(config, args.service or "")
    if args.model:
        exported = replace(exported, given=args.model)
    text = doubt + exported_text(exported, args.form or exported.spoken)
    if args.output is None:
        print(text, end="")
    else:
        write_text(Path(args.output), text)
    return EXIT_DONE


def _chosen(database: Database, name: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The configuration a study recommends, its best, else the baseline it says to keep; its
    target; a comment that says what is in doubt, or ""."""
    from tuner.errors import UserError
    from tuner.exchange.belonging import study_named
    from tuner.report.words import ANSWERS

    study = study_named(database, name)
    result = study.result or {}
    best = (result.get("best") or {}).get("config")
    if best:
        return dict(best), study.target or {}, _doubt(result)
    if not result:
        raise UserError(f"study {name!r} has no answer yet ({study.state}); go on with it first")
    answer = str(result.get("answer"))
    baseline = (result.get("baseline") or {}).get("config")
    if baseline and answer == "keep_baseline":
        return dict(baseline), study.target or {}, ""
    reason = result.get("reason")
    why = f"{ANSWERS.get(answer, answer)}: {reason}" if reason else "none is shown to meet the SLOs"
    further = "; a larger --budget may decide" if answer == "undecided" else ""
    raise UserError(f"study {name!r} recommends no configuration ({why}){further}")


def _doubt(result: dict[str, Any]) -> str:
    from tuner.report.words import DOUBTFUL, is_confirmed

    return "" if is_confirmed(result) else f"# the study's best candidate, {DOUBTFUL}\n"
