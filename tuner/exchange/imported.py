"""What the readers of other tools' files share: checked fields, and the run their records make.

Invariant: an imported run is summarised by the code that summarises our own, says what it came
from, and lists what its file could not tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from tuner import figures
from tuner.errors import UserError
from tuner.exchange.checks import checked
from tuner.exchange.judging import measurement
from tuner.exchange.run import Run
from tuner.records import MOST_TOKENS, RequestRecord, to_columns
from tuner.slo import SloSet

MAX_ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run comes from. load: how the tool itself described the load. unknown: metric → why
    its figures cannot be computed. notes: what a reader should know before trusting the rest."""

    format: str
    version: str
    file: str
    load: str
    unknown: Mapping[str, str]
    notes: Sequence[str] = ()


def imported(
    source: Source,
    records: list[RequestRecord],
    window_s: tuple[float, float],
    began_unix_s: float,
    *,
    url: str,
    model: str,
    arrivals: str,
    seed: int | None = None,
    workload: str = "",
) -> Run:
    """arrivals: our words for the load, "concurrency=8" or "rate=2". workload: its whole text,
    where the file tells it. Raises UserError without a single request in the window."""
    lengths = f"prompt={_lengths(records, 'prompt')},output={_lengths(records, 'output')}"
    about = {
        "format": source.format,
        "version": source.version,
        "file": source.file,
        "load": source.load,
        "unknown": dict(source.unknown),
    }
    run = Run(
        name=source.file,
        columns=to_columns(records),
        window_s=window_s,
        began_unix_s=began_unix_s,
        url=url,
        model=model,
        workload=workload or f"{lengths},{arrivals}",
        seed=seed,
        config={"url": url, "model": model},
        summary={"source": about, "lag_p99_s": _lag_s(source, records, window_s)},
    )
    made = measurement(checked(run), SloSet())
    if not made.counts["sent"]:
        raise UserError(f"{source.file}: no request was sent inside the measured window")
    told = f"imported from {source.format} {source.version}".rstrip()
    notes = [told, *source.notes, *(f"{key}: {why}" for key, why in source.unknown.items())]
    summary = made.summary_dict() | {"source": about, "notes": [*notes, *made.notes]}
    summary = orjson.loads(orjson.dumps(summary))  # as it is stored: NaN is null
    failed = made.counts["ok"] == 0
    state = "failed" if failed else "invalid" if made.invalid_reason else "ok"
    return replace(run, summary=summary, state=state, failure_reason=made.invalid_reason)


def to_end(start_s: float, end_s: float, records: Sequence[RequestRecord]) -> tuple[float, float]:
    """A window that holds its last event: the tools close theirs at it, ours are half open."""
    last_s = max((r.chunk_times_s[-1] for r in records if r.chunk_times_s), default=end_s)
    ended_s = max((r.end_s for r in records if r.state == "ok"), default=end_s)
    ended_s = end_s if math.isnan(ended_s) else ended_s
    near = [at_s for at_s in (last_s, ended_s) if 0 <= at_s - end_s < 1e-3]
    return start_s, math.nextafter(max([end_s, *near]), math.inf)


def owed_tokens(records: Sequence[RequestRecord]) -> None:
    """Give each request the output length it was asked for, as far as the file lets it be seen: its
    own where it ended well, else the median (what a failure cost is judged by it)."""
    good = [r.output_tokens for r in records if r.ok]
    median = round(float(np.median(good))) if good else 1
    for record in records:
        record.wanted_output_tokens = record.output_tokens if record.ok else median


def number(value: Any, what: str) -> float:
    """A finite number, or UserError naming what it should have been."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{what} is no number: {value!r:.60}")
    return float(value)


def count(value: Any, what: str) -> int:
    """A count of tokens, 0 for null; or UserError."""
    if value is None:
        return 0
    whole = number(value, what)
    if not 0 <= whole <= MOST_TOKENS:
        raise UserError(f"{what} is no possible count: {value!r:.60}")
    return int(whole)


def moment(value: Any, zero_s: float, what: str) -> float:
    """Seconds since zero_s; NaN for null and for the −1 that stands for it."""
    if value is None or value == -1:
        return math.nan
    return number(value, what) - zero_s


def one_line(text: str) -> str:
    """The last line of an error: of a traceback the one that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:MAX_ERROR_CHARS] if lines else ""


def _lag_s(
    source: Source, records: Sequence[RequestRecord], window_s: tuple[float, float]
) -> float | None:
    if "lag" in source.unknown:
        return None
    return figures.lag_p99_s(figures.in_window(records, window_s))


def _lengths(records: Sequence[RequestRecord], what: str) -> str:
    values = [v for r in records if r.ok and (v := getattr(r, f"{what}_tokens")) > 0]
    if not values:
        return "1"
    mean, spread = float(np.mean(values)), float(np.std(values))
    return f"{mean:.0f}" if spread < 0.5 else f"normal({mean:.0f},{spread:.0f})"
