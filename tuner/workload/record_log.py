"""A trace from a proxy's log of requests: JSON lines, CSV, or an access log of any common form.

The trace is a CSV that trace= replays: timestamp_s since the first request and, where the log has
them, prompt_tokens and output_tokens. Nothing of a prompt's text or of a client is kept.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import UserError
from tuner.regular import check_regular
from tuner.units import count_text
from tuner.workload.columns import AS_NAMED, Named
from tuner.workload.read import read_recording
from tuner.workload.rows import Rows

_CLF_TIME = re.compile(r"\[(\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})\]")
_ISO_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?")
_REQUEST = re.compile(r'"?(?:POST|GET|PUT|DELETE|HEAD|OPTIONS|PATCH) (\S+)')
_STATUS = re.compile(r'(?:HTTP/[\d.]+"?\s+|" )(\d{3})\b')
_PATHS = ("/completions", "/generate", "/responses", "/messages")
MAX_LINE_CHARS = 1 << 20


@dataclass(slots=True)
class Log:
    """times_s from the first request on; tokens None where the log has none. left_out: why → how
    many lines."""

    form: str
    times_s: list[float]
    prompt_tokens: list[int] | None = None
    output_tokens: list[int] | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        left_out = self.left_out.items()
        said = [f"{count_text(count, 'line')} left out: {why}" for why, count in left_out]
        if self.prompt_tokens is None or self.output_tokens is None:
            lacks = " and ".join(
                name
                for name, column in (("prompt", self.prompt_tokens), ("output", self.output_tokens))
                if column is None
            )
            said.append(f"the log has no {lacks} tokens: give them as lengths beside trace=")
        if all(at_s == int(at_s) for at_s in self.times_s):
            said.append("its times are whole seconds: gaps shorter than that are not known")
        return [*said, "which prompts share a prefix or belong to one conversation is not known"]


def read_log(path: str, named: Named = AS_NAMED) -> Log:
    """Raises UserError where nothing in it is a request."""
    with _opened(path) as file:
        first = next((line for line in file if line.strip()), "")
    if _is_access_log(first):
        return _access_log(path)
    rows = read_recording(path, named).rows
    if rows.times_s is None:
        raise UserError(f"{path}: has no column of times; name it with --time-column")
    return _of_rows(rows, path)


def write_trace(log: Log, path: Path) -> None:
    """Raises UserError where the file exists or cannot be written."""
    columns: dict[str, list[Any]] = {"timestamp_s": [round(at_s, 6) for at_s in log.times_s]}
    for name in ("prompt_tokens", "output_tokens"):
        if (tokens := getattr(log, name)) is not None:
            columns[name] = tokens
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    except FileExistsError:
        raise UserError(f"{path} exists already; give another --output") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error})") from None


def _of_rows(rows: Rows, path: str) -> Log:
    """A table of requests; those without an answer were failures."""
    assert rows.times_s is not None
    order = np.argsort(rows.times_s, kind="stable")
    counted = None if rows.estimated else rows.prompt_tokens
    left_out: dict[str, int] = {}
    outputs = rows.output_tokens if rows.roles.output_tokens else None
    if outputs is not None:
        good = outputs[order] > 0
        if not good.all():
            left_out["no output tokens, the request failed"] = int((~good).sum())
        order = order[good]
    if not len(order):
        raise UserError(f"{path}: holds no request with output tokens")
    times = rows.times_s[order] - rows.times_s[order[0]]
    return Log(
        rows.form,
        times.tolist(),
        counted[order].tolist() if counted is not None else None,
        outputs[order].tolist() if outputs is not None else None,
        left_out,
    )


def _is_access_log(line: str) -> bool:
    return line.lstrip()[:1] != "{" and _REQUEST.search(line) is not None


def _access_log(path: str) -> Log:
    """Times of requests to a generating path that were answered with 2xx."""
    times: list[float] = []
    left_out: dict[str, int] = {}

    def leave(why: str) -> None:
        left_out[why] = left_out.get(why, 0) + 1

    with _opened(path) as file:
        for line in _bounded(file):
            asked, at_s = _REQUEST.search(line), _time_of(line)
            status = _STATUS.search(line)
            if asked is None or at_s is None:
                leave("no request or no time in them")
            elif not any(end in asked.group(1) for end in _PATHS):
                leave("other paths")
            elif status is not None and not status.group(1).startswith("2"):
                leave("not answered with 2xx")
            else:
                times.append(at_s)
    if not times:
        raise UserError(
            f"{path}: no line is a request to /v1/completions, /v1/chat/completions or like paths "
            "with a time"
        )
    times.sort()
    return Log("access log", [at_s - times[0] for at_s in times], left_out=left_out)


def _time_of(line: str) -> float | None:
    """None where the line has no time, or one that no calendar has."""
    try:
        if found := _CLF_TIME.search(line):
            return datetime.strptime(found.group(1), "%d/%b/%Y:%H:%M:%S %z").timestamp()
        if found := _ISO_TIME.search(line):
            at = datetime.fromisoformat(found.group())
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        return None
    return None


def _opened(path: str) -> Any:
    try:
        check_regular(Path(path))
        return open(path, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None


def _bounded(file: Any) -> Iterator[str]:
    while line := file.readline(MAX_LINE_CHARS):
        if line.strip():
            yield line
