"""What a workload will send, drawn without a server: quantiles, histograms, arrivals.

Everything shown says its unit and how many samples it stands on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tuner.units import count_text
from tuner.workload.model import Workload
from tuner.workload.sharing import repeated_share

BINS = 12
BAR_CHARS = 40
ARRIVALS_AT_MOST = 200_000
QUANTILES = (0.05, 0.5, 0.95, 0.99)
SHOWN_S = 60.0
SPREAD_FOR_LOG = 10.0
"""A p95 this many times the p5 is drawn on a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One quantity. bins: (from, to, how many)."""

    name: str
    unit: str
    samples: int
    mean: float
    quantiles: dict[str, float]
    largest: float
    bins: list[tuple[float, float, int]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """Sessions started in each stretch of the sending time, or clients at its middle."""

    closed: bool
    duration_s: float
    seed: int
    count: int
    bins: list[tuple[float, float, int]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    workload: str
    seed: int
    sessions: int
    requests: int
    drawn: list[Drawn]
    arrivals: Curve
    repeated_share: float | None
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def picture(workload: Workload, seed: int, sessions: int, duration_s: float) -> Picture:
    """Draws that many sessions, and the arrivals of duration_s of sending."""
    sessions = min(sessions, workload.requests or sessions)
    if workload.source is not None:
        sessions = min(sessions, workload.source.rows.count)
    turns = [workload.turn_count(seed, session) for session in range(sessions)]
    pairs = [(s, turn) for s in range(sessions) for turn in range(turns[s])]
    lengths = [workload.lengths(seed, session, turn) for session, turn in pairs]
    source = workload.source
    prompts, note = [prompt for prompt, _, _ in lengths], ""
    if source is not None and source.rows.estimated:
        prompts = [source.lengths(source.row(seed, session)[0])[0] for session in range(sessions)]
        note = "estimated at 4 characters a token; the server's count is what will be shown"
    drawn = [
        _drawn("prompt", "tokens", prompts, note),
        _drawn("output", "tokens", [output for _, output, _ in lengths], _output_note(workload)),
    ]
    if workload.conversational:
        drawn.append(_drawn("turns", "a conversation", turns))
        pauses = [workload.think_s(seed, session, turn) for session, turn in pairs if turn]
        drawn += [_drawn("think", "s", pauses)] if any(pauses) else []
    if workload.prefix_groups > 1 and workload.shared_prefix:
        groups = [
            group for (_, turn), (_, _, group) in zip(pairs, lengths, strict=True) if not turn
        ]
        drawn.append(_drawn("prefix group", "number", groups))
    return Picture(
        str(workload), seed, sessions, len(pairs), drawn, _curve(workload, seed, duration_s),
        repeated_share(workload, seed, pairs), _notes(workload),
    )  # fmt: skip


def shown_s(workload: Workload) -> float:
    """How long the arrivals are drawn for where nobody says: to the end of what is given."""
    arrivals = workload.arrivals
    planned_s = arrivals.profile.length_s if arrivals.profile is not None else 0.0
    last_s = arrivals.last_s or 0.0
    return max(SHOWN_S, planned_s, math.nextafter(last_s, math.inf))


def lines(shown: Picture) -> list[str]:
    """For a terminal."""
    requests = count_text(shown.requests, "request")
    out = [f"workload   {shown.workload}"]
    out += [f"           {note}" for note in shown.notes]
    out.append(f"drawn      seed {shown.seed}, {count_text(shown.sessions, 'session')}, {requests}")
    for drawn in shown.drawn:
        out += ["", *_histogram(drawn)]
    if shown.repeated_share is not None:
        share = f"{shown.repeated_share:.1%} of prompt tokens repeat earlier ones of this workload"
        out += ["", f"prefix sharing: {share} ({requests})"]
    return [*out, "", *_arrivals(shown.arrivals)]


def _drawn(name: str, unit: str, values: list[int] | list[float], note: str = "") -> Drawn:
    sample = np.asarray(values, dtype=np.float64)
    quantiles = np.quantile(sample, QUANTILES, method="inverted_cdf")
    return Drawn(
        name, unit, len(sample), float(sample.mean()),
        {f"p{100 * q:g}": float(v) for q, v in zip(QUANTILES, quantiles, strict=True)},
        float(sample.max()), _bins(sample), note,
    )  # fmt: skip


def _bins(sample: np.ndarray[Any, Any]) -> list[tuple[float, float, int]]:
    low, high = float(sample.min()), float(sample.max())
    whole = bool(np.all(sample == np.floor(sample)))
    if low == high:
        return [(low, high, len(sample))]
    if low > 0 and np.quantile(sample, 0.95) > SPREAD_FOR_LOG * np.quantile(sample, 0.05):
        edges = np.geomspace(low, high, BINS + 1)
    elif whole:
        step = -(-(high - low + 1) // BINS)
        edges = np.arange(low, high + step + 1, step)
    else:
        edges = np.linspace(low, high, BINS + 1)
    if whole:
        edges = np.unique(np.floor(edges))
        if edges[-1] <= high:
            edges[-1] = high + 1
    counts, _ = np.histogram(sample, edges)
    last = edges[1:] - 1 if whole else edges[1:]
    pairs = zip(edges[:-1].tolist(), last.tolist(), counts.tolist(), strict=True)
    return [(a, b, int(count)) for a, b, count in pairs]


def _curve(workload: Workload, seed: int, duration_s: float) -> Curve:
    arrivals = workload.arrivals
    edges = np.linspace(0, duration_s, BINS + 1)
    if arrivals.closed:
        clients = [arrivals.clients_at(float(m), duration_s) for m in (edges[1:] + edges[:-1]) / 2]
        bins = [(float(a), float(b), n) for a, b, n in zip(edges, edges[1:], clients, strict=False)]
        return Curve(True, duration_s, seed, max(clients), bins)
    times = arrivals.times(seed, duration_s)  # as the generator draws them
    limit = min(workload.requests or ARRIVALS_AT_MOST, ARRIVALS_AT_MOST)
    soon = itertools.takewhile(lambda at_s: at_s < duration_s, times)
    sample = np.array(list(itertools.islice(soon, limit)))
    counts, _ = np.histogram(sample, edges)
    bins = [(float(a), float(b), int(n)) for a, b, n in zip(edges, edges[1:], counts, strict=False)]
    note = f"the first {ARRIVALS_AT_MOST} only" if len(sample) == ARRIVALS_AT_MOST else ""
    return Curve(False, duration_s, seed, len(sample), bins, note)


def _output_note(workload: Workload) -> str:
    source = workload.source
    estimated = source is not None and workload.output.kind == "recorded" and source.rows.has_text
    if estimated and source is not None and source.rows.roles.output_tokens is None:
        return "estimated from the file's answers at 4 characters a token"
    return ""


def _notes(workload: Workload) -> list[str]:
    source = workload.source
    if source is None:
        return []
    notes = [f"{source.file.path}: {source.rows.form}, {count_text(source.rows.count, 'row')}"]
    notes += [f"{count_text(count, 'row')} left out: {why}" for why, count in source.rows.left_out]
    if source.rows.blocks is not None:
        notes.append("prefix blocks of 512 tokens are shared as the trace says")
    return notes


def _histogram(drawn: Drawn) -> list[str]:
    quantiles = " · ".join(f"{name} {_number(value)}" for name, value in drawn.quantiles.items())
    head = (
        f"{drawn.name} ({drawn.unit}, {count_text(drawn.samples, 'sample')}): "
        f"mean {_number(drawn.mean)} · {quantiles} · max {_number(drawn.largest)}"
    )
    rows = [
        (f"{_number(a)}" if a == b else f"{_number(a)} – {_number(b)}", n) for a, b, n in drawn.bins
    ]
    return [head, *([f"  {drawn.note}"] if drawn.note else []), *_bars(rows)]


def _arrivals(curve: Curve) -> list[str]:
    if curve.closed and {n for _, _, n in curve.bins} == {curve.count}:
        return [f"clients: {curve.count} all the time (closed loop)"]
    if curve.closed:
        head = f"clients over {curve.duration_s:g} s of sending (closed loop): peak {curve.count}"
    else:
        rate = curve.count / curve.duration_s
        head = (
            f"arrivals over {curve.duration_s:g} s of sending (seed {curve.seed}): {curve.count} "
            f"sessions, {rate:.3g}/s on average"
        )
    rows = [(f"{_number(a)} – {_number(b)} s", n) for a, b, n in curve.bins]
    return [head, *([f"  {curve.note}"] if curve.note else []), *_bars(rows)]


def _bars(rows: list[tuple[str, int]]) -> list[str]:
    most = max((count for _, count in rows), default=0) or 1
    width = max(len(label) for label, _ in rows)
    return [
        f"  {label:>{width}}  {'█' * max(round(BAR_CHARS * n / most), n > 0):<{BAR_CHARS}}  {n}"
        for label, n in rows
    ]


def _number(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.3g}"
