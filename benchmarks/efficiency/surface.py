"""A recorded surface: every point of a grid of knob settings with the runs that were made there.

A file is gzipped JSON. Times are whole numbers of 0.1 ms, each as its difference from the one
before it (send, scheduled send of the request before, piece of text…), which is what makes a file
small. Invariant: read(write(surface)) differs from the surface by less than a tick in any time.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tuner.records import NEVER, RequestRecord
from tuner.search.trials import Config
from tuner.slo import SloSet, parse_slos
from tuner.workload import Workload, parse_workload

FORMAT = "slotune-surface-2"
TICK_S = 1e-4

Key = tuple[tuple[str, Any], ...]


def key_of(config: Mapping[str, Any]) -> Key:
    return tuple(sorted(config.items()))


@dataclass(frozen=True)
class RecordedRun:
    """One run of a grid point. window_s: the part that counted, on the records' clock. spent_s: of
    the whole trial, putting the settings in force included. generator: as a stored summary has it.
    A failed run has no records."""

    config: Config
    seed: int
    state: str
    window_s: tuple[float, float]
    spent_s: float
    records: list[RequestRecord] = field(repr=False)
    generator: dict[str, Any] | None = None
    failure_kind: str | None = None
    failure_reason: str = ""

    @cached_property
    def inside(self) -> list[RequestRecord]:
        """The requests that counted, in order of their scheduled sends."""
        start_s, end_s = self.window_s
        found = [r for r in self.records if start_s <= r.scheduled_s < end_s]
        return sorted(found, key=lambda record: record.scheduled_s)

    @property
    def overhead_s(self) -> float:
        """Of a trial, beside the load: settings, cache reset, start and end of the generator."""
        return max(0.0, self.spent_s - max((r.end_s for r in self.records), default=0.0))


@dataclass(frozen=True)
class Surface:
    """kind: of the target that was recorded. grid: knob → values, ascending. window_s and warmup_s:
    as each run was asked for."""

    about: str
    kind: str
    workload: Workload
    slos: SloSet
    baseline: Config
    grid: dict[str, tuple[Any, ...]]
    window_s: float
    warmup_s: float
    runs: list[RecordedRun] = field(repr=False)

    @cached_property
    def points(self) -> dict[Key, list[RecordedRun]]:
        """The runs of each grid point."""
        found: dict[Key, list[RecordedRun]] = {}
        for run in self.runs:
            found.setdefault(key_of(run.config), []).append(run)
        return found

    @property
    def live(self) -> bool:
        """Whether settings change without a restart."""
        return self.kind == "slotune"

    def change_s(self, config: Config) -> float:
        """Of a trial that puts the settings in force, beside its load: of a server that restarts,
        the runs on a start that was there already took less."""
        overheads = [run.overhead_s for run in self.points[key_of(config)]]
        return sum(overheads) / len(overheads) if self.live else max(overheads)

    @cached_property
    def grid_s(self) -> float:
        """Machine time that measuring each point once takes: the load's mean over its runs and the
        change of settings, added up."""
        return sum(
            sum(run.spent_s - run.overhead_s for run in runs) / len(runs)
            + self.change_s(runs[0].config)
            for runs in self.points.values()
        )


def write(surface: Surface, path: Path) -> None:
    text = json.dumps(
        {
            "format": FORMAT,
            "about": surface.about,
            "kind": surface.kind,
            "workload": str(surface.workload),
            "slos": [clause.text for clause in surface.slos.clauses],
            "baseline": surface.baseline,
            "grid": surface.grid,
            "window_s": surface.window_s,
            "warmup_s": surface.warmup_s,
            "tick_s": TICK_S,
            "runs": [_packed(run) for run in surface.runs],
        },
        separators=(",", ":"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def read(path: Path) -> Surface:
    """Raises ValueError for a file that holds no surface."""
    try:
        found = json.loads(gzip.decompress(path.read_bytes()))
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError) as fault:
        raise ValueError(f"{path}: not a surface file, which is gzipped JSON ({fault})") from fault
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: not a surface file of the format {FORMAT}")
    try:
        return _surface(found)
    except (LookupError, TypeError, AttributeError) as fault:
        told = f"{type(fault).__name__}: {fault}"
        raise ValueError(f"{path}: a surface file that is damaged ({told})") from fault


def _surface(found: Mapping[str, Any]) -> Surface:
    return Surface(
        about=found["about"],
        kind=found["kind"],
        workload=parse_workload(found["workload"]),
        slos=parse_slos(found["slos"]),
        baseline=found["baseline"],
        grid={name: tuple(values) for name, values in found["grid"].items()},
        window_s=found["window_s"],
        warmup_s=found["warmup_s"],
        runs=[_unpacked(run, found["tick_s"]) for run in found["runs"]],
    )


def _packed(run: RecordedRun) -> dict[str, Any]:
    records = sorted(run.records, key=lambda record: record.scheduled_s)
    sends = [0, *(_ticks(record.scheduled_s) for record in records)]
    return {
        "config": run.config,
        "seed": run.seed,
        "state": run.state,
        "failure": [run.failure_kind, run.failure_reason],
        "window_s": list(run.window_s),
        "spent_s": round(run.spent_s, 4),
        "generator": run.generator,
        "scheduled": [after - before for before, after in pairwise(sends)],
        "times": [_differences(record) for record in records],
        "tokens": [_tokens(record) for record in records],
        "prompt": [record.prompt_tokens for record in records],
        "output": [record.output_tokens for record in records],
        "odd": {
            str(place): [record.state, record.http_status, record.error]
            for place, record in enumerate(records)
            if not record.ok
        },
    }


def _ticks(at_s: float) -> int:
    return round(at_s / TICK_S)


def _differences(record: RequestRecord) -> list[int]:
    """Sent, each piece of text, end: each after the one before, from the scheduled send on."""
    sent_s = record.scheduled_s if math.isnan(record.sent_s) else record.sent_s
    times = [record.scheduled_s, sent_s, *record.chunk_times_s, record.end_s]
    return [after - before for before, after in pairwise([_ticks(at_s) for at_s in times])]


def _tokens(record: RequestRecord) -> list[int]:
    """Of each piece; empty where all are of one token."""
    return [] if set(record.chunk_tokens) <= {1} else list(record.chunk_tokens)


def _unpacked(run: dict[str, Any], tick_s: float) -> RecordedRun:
    start_s, end_s = run["window_s"]
    kind, reason = run["failure"]
    return RecordedRun(
        config=run["config"],
        seed=run["seed"],
        state=run["state"],
        window_s=(start_s, end_s),
        spent_s=run["spent_s"],
        records=_records(run, tick_s),
        generator=run["generator"],
        failure_kind=kind,
        failure_reason=reason,
    )


def _records(run: dict[str, Any], tick_s: float) -> list[RequestRecord]:
    found, scheduled = [], 0
    for place, gap in enumerate(run["scheduled"]):
        scheduled += gap
        times = _summed(scheduled, run["times"][place], tick_s)
        record = RequestRecord(place, scheduled * tick_s, sent_s=times[0], end_s=times[-1])
        record.chunk_times_s = times[1:-1]
        record.chunk_tokens = run["tokens"][place] or [1] * len(record.chunk_times_s)
        first_s = record.chunk_times_s[0] if record.chunk_times_s else NEVER
        record.first_byte_s = record.first_token_s = record.first_answer_token_s = first_s
        record.prompt_tokens, record.output_tokens = run["prompt"][place], run["output"][place]
        record.state, record.http_status, record.error = run["odd"].get(str(place), ("ok", 200, ""))
        found.append(record)
    return found


def _summed(start: int, differences: Sequence[int], tick_s: float) -> list[float]:
    times, at = [], start
    for difference in differences:
        at += difference
        times.append(at * tick_s)
    return times
