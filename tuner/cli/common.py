"""Options, exit codes and the progress line that the commands share.

Results go to stdout, progress and notes to stderr, so that `--json` can be piped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tuner.errors import UserError
from tuner.printable import shortened, shown

if TYPE_CHECKING:
    from tuner.quality import Task
    from tuner.server_side import PrometheusTarget
    from tuner.slo import SloSet

EXIT_DONE = 0
EXIT_ANSWER_IS_NO = 1
EXIT_BAD_INPUT = 2
EXIT_FAULT = 3
EXIT_CRITICAL = 4
EXIT_INTERRUPTED = 130

DEFAULT_DATABASE = "slotune.db"
UNKNOWN_COLUMNS = 80
"""Of a terminal that does not tell its width."""

MAX_SEED = 2**31 - 1
MAX_NAME_CHARS = 200
"""Of a study: a table's row, and what an index of PostgreSQL holds."""


def add_target_options(parser: argparse.ArgumentParser, *, url_required: bool = False) -> None:
    """--url, --model, --api-key."""
    group = parser.add_argument_group("target")
    group.add_argument(
        "--url", required=url_required, help="base URL of a running server, http://HOST:PORT"
    )
    group.add_argument(
        "--model", metavar="NAME", help="model name to request (default: what the server serves)"
    )
    group.add_argument("--api-key", metavar="KEY", help="bearer token the server asks for")


def add_load_options(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """--workload (several: a list, may be given again), --slo, --seed."""
    group = parser.add_argument_group("load and SLOs")
    again = "; given again: every one must hold, the worst counts" if several else ""
    group.add_argument(
        "--workload",
        action="append" if several else "store",
        default=[] if several else None,
        metavar="TEXT",
        help='what to send: a preset, "chat,rate=2", or lengths and clients (default '
        f'"prompt=256,output=64,concurrency=16"); `tuner workload show` lists them{again}',
    )
    group.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar='"METRIC<BOUND"',
        help='e.g. "ttft_p95<500ms"; may be given several times; keep the quotes',
    )
    group.add_argument(
        "--seed",
        type=seed,
        default=0,
        metavar="N",
        help="of arrivals, lengths and search (default %(default)s)",
    )


def seed(text: str) -> int:
    """An argparse type: what every random generator and database column takes."""
    value = int(text)
    if not 0 <= value <= MAX_SEED:
        raise argparse.ArgumentTypeError(f"must be between 0 and {MAX_SEED}, got {value}")
    return value


def study_name(text: str) -> str:
    """An argparse type: what a study can be kept under."""
    if not text.strip() or not text.isprintable():
        shortest = shown(shortened(text))
        raise argparse.ArgumentTypeError(f"{shortest!r} is no name: give one of printable text")
    if len(text) > MAX_NAME_CHARS:
        raise argparse.ArgumentTypeError(
            f"a name has at most {MAX_NAME_CHARS} characters, this one has {len(text)}"
        )
    return text


def output_file(text: str) -> str:
    """An argparse type: the name of a file to write."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no file: give one to write")
    return text


def add_database_option(parser: argparse.ArgumentParser) -> None:
    """--database."""
    parser.add_argument(
        "--database",
        default=DEFAULT_DATABASE,
        metavar="PATH|URL",
        help="SQLite file or SQLAlchemy URL that keeps every measurement (default %(default)s)",
    )


def add_prometheus_options(parser: argparse.ArgumentParser) -> None:
    """--prometheus and --label: where the server's own figures are read."""
    group = parser.add_argument_group("the server's own figures")
    group.add_argument(
        "--prometheus",
        metavar="URL",
        help="a Prometheus that scrapes the server (default: the server's /metrics)",
    )
    group.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --prometheus: only series with this label, e.g. instance=gpu1:8000",
    )


def prometheus_from(args: argparse.Namespace) -> PrometheusTarget | None:
    """What add_prometheus_options was given. Raises UserError."""
    from tuner.server_side import PrometheusTarget

    labels = pairs(args.label, "--label", "NAME=VALUE")
    if args.prometheus is None:
        if labels:
            raise UserError("--label narrows the series of --prometheus: give that too")
        return None
    return PrometheusTarget(args.prometheus, labels)


def pairs(texts: Sequence[str], option: str, form: str) -> dict[str, str]:
    """NAME=VALUE texts of an option; form is how a fault says to write them. Raises UserError."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UserError(f"{option} {text!r}: write {form}")
        found[name.strip()] = value.strip()
    return found


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """--json, --quiet."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the result as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")


def check_measurable(slos: SloSet, *, quality: bool, price: bool | None) -> None:
    """Clauses that the options leave without a figure: told before the load, not after it. price
    None: the command has no such option. Raises UserError."""
    metrics = {clause.metric for clause in slos.clauses}
    if "accuracy" in metrics and not quality:
        raise UserError("--slo names accuracy: give the tasks that measure it with --quality FILE")
    if "cost_per_mtok" in metrics and price is None:
        raise UserError("--slo names cost_per_mtok, which is measured by bench and optimize alone")
    if "cost_per_mtok" in metrics and not price:
        raise UserError("--slo names cost_per_mtok: give --price-per-hour")


def task_from(path: str | None) -> Task | None:
    """What --quality FILE holds. Raises UserError."""
    if path is None:
        return None
    from tuner.quality import read_task

    return read_task(Path(path))


def study_quality(args: argparse.Namespace, stored: str | None) -> tuple[str | None, Task | None]:
    """(the file as a study keeps it, its task): of --quality, or what the study was begun with; one
    study has one set of questions. Raises UserError."""
    if args.quality is None and stored is None:
        return None, None
    from tuner.quality import pinned, read_pinned

    given = stored if args.quality is None else pinned(args.quality)
    if stored is not None and given != stored:
        raise UserError(
            f"--quality {args.quality}: study {args.study!r} was begun with {stored}; other "
            "questions need another --study"
        )
    return given, read_pinned(str(given))


def print_lines(lines: Sequence[str]) -> None:
    """On stdout, without the control characters that a stored name or reason may hold."""
    print(shown("\n".join(lines)))


def print_json(value: Any) -> None:
    """One JSON document on stdout; infinities and NaN become null."""
    print(json.dumps(_finite(value), indent=2, default=str))


class ProgressLine:
    """A status line on stderr: rewritten in place on a terminal, a new line now and then in a log.

    interval_s is the shortest time between two lines where stderr is no terminal.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, interval_s: float = 10.0
    ) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = self._stream.isatty()
        self._interval_s = interval_s
        self._last_s = -math.inf
        self._width = 0

    def update(self, text: str) -> None:
        """Show text as the present state; dropped in a log when the last line is recent."""
        if self._quiet:
            return
        text = shown(text)
        if self._live:
            start = self._to_its_start()
            self._write(start + text.ljust(self._width))
            self._width = len(text)
        elif time.monotonic() - self._last_s >= self._interval_s:
            self._last_s = time.monotonic()
            self._write(text + "\n")

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        self.clear()
        self._write(shown(text) + "\n")

    def clear(self) -> None:
        """Remove the status line from a terminal."""
        if self._live and self._width:
            start = self._to_its_start()
            self._write(start + " " * self._width + "\r")
        self._width = 0

    def _to_its_start(self) -> str:
        """What moves a terminal to where the line begins; one that wraps is erased on the way."""
        rows = math.ceil(self._width / self._columns())
        if rows < 2:
            return "\r"
        self._width = 0
        return f"\x1b[{rows - 1}A\r\x1b[J"

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or UNKNOWN_COLUMNS
        except (AttributeError, OSError, ValueError):
            return UNKNOWN_COLUMNS

    def _write(self, text: str) -> None:
        """The work goes on when nobody reads how it does any more (`2>&1 | head`)."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._quiet, self._live = True, False


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
