"""The samples of a latency: one row per request, in order of scheduling, nothing left out.

Failed requests have infinite values. Requests still running at cut-off are *open*: their value is
at least what was seen. A figure takes samples only from here, so all count the same requests.
"""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tuner.records import RequestRecord

Window = tuple[float, float]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

VALUE_OF: dict[str, Callable[[RequestRecord], float]] = {
    "ttft": lambda record: record.ttft_s,
    "ttfat": lambda record: record.ttfat_s,
    "tpot": lambda record: record.tpot_s,
    "e2e": lambda record: record.e2e_s,
}


@dataclass(frozen=True, slots=True)
class Samples:
    """values (seconds, at least this much where is_open), sizes[i] of them from request i.

    names: (session, turn) of each request. runs: how many requests belong to each run, None for
    one run. sizes is None where every request has exactly one value.
    """

    values: Floats
    is_open: Bools
    names: list[tuple[int, int]]
    sizes: Floats | None = None
    runs: list[int] | None = None

    @property
    def unfinished(self) -> int:
        return int(self.is_open.sum())

    @property
    def unseen(self) -> bool:
        """Whether of an open sample nothing was seen: it is known to be no less than 0 only."""
        return bool((self.values[self.is_open] == 0).any())

    def at_worst(self) -> Floats:
        """The values with open ones as late as they could be: never."""
        return np.where(self.is_open, math.inf, self.values)

    def only(self, chosen: Sequence[int]) -> Samples:
        """The requests at these positions, in this order, as one run."""
        names = [self.names[i] for i in chosen]
        if self.sizes is None:
            return Samples(self.values[chosen], self.is_open[chosen], names)
        ends = np.cumsum(self.sizes).astype(int)
        starts = ends - self.sizes.astype(int)
        at = np.concatenate([np.empty(0, int), *(np.arange(starts[i], ends[i]) for i in chosen)])
        return Samples(self.values[at], self.is_open[at], names, self.sizes[chosen])


def in_window(records: Sequence[RequestRecord], window: Window) -> list[RequestRecord]:
    """Requests scheduled inside the window."""
    return [r for r in records if window[0] <= r.scheduled_s < window[1]]


def in_order(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """By scheduled time. Requests of the same moment have no order: they come in a random one
    (always the same), so that their place in a list is not taken for time."""
    drawn = np.random.default_rng(0).permutation(len(records))
    order = sorted(range(len(records)), key=lambda i: (records[i].scheduled_s, drawn[i]))
    return [records[i] for i in order]


def samples(
    records: Sequence[RequestRecord],
    metric: str,
    end_s: float,
    run_ends_s: Sequence[float] = (),
) -> Samples:
    """Of the given records (those inside a window). Undefined latencies (TPOT of one token) have
    no sample.

    end_s: when the records were cut off, for those that do not tell themselves. run_ends_s: where
    one run ends and the next begins, on the records' clock.
    """
    rows: list[tuple[RequestRecord, Floats, bool]] = []
    for record in in_order(records):
        values, last_open = _row(record, metric, end_s)
        if len(values):
            rows.append((record, values, last_open))
    sizes = np.array([len(values) for _, values, _ in rows], dtype=float)
    is_open = np.zeros(int(sizes.sum()), dtype=bool)
    last = np.cumsum(sizes).astype(int) - 1
    is_open[last[np.array([row[2] for row in rows], dtype=bool)]] = True
    return Samples(
        np.concatenate([np.empty(0), *(values for _, values, _ in rows)]),
        is_open,
        [(record.session, record.turn) for record, _, _ in rows],
        sizes if metric == "itl" else None,
        run_lengths([record.scheduled_s for record, _, _ in rows], run_ends_s),
    )


def run_lengths(scheduled_s: Sequence[float], run_ends_s: Sequence[float]) -> list[int] | None:
    """How many of the ascending times belong to each run; None for one run."""
    if not run_ends_s:
        return None
    edges = [0, *(bisect.bisect_left(scheduled_s, end) for end in run_ends_s), len(scheduled_s)]
    lengths = [b - a for a, b in pairwise(edges) if b > a]
    return lengths if len(lengths) > 1 else None


def gap_groups(records: Sequence[RequestRecord]) -> list[Floats]:
    """The gaps of each request that has or owes some, in order; a failed one owes as many infinite
    gaps as it was asked for, so that failures weigh what they cost."""
    groups = [_gaps(record) for record in in_order(records)]
    return [group for group in groups if len(group)]


def cut_off_s(records: Sequence[RequestRecord], window: Window) -> float:
    """When the last thing was heard of any request."""
    heard = [r.end_s for r in records if not math.isnan(r.end_s)]
    heard += [r.chunk_times_s[-1] for r in records if r.chunk_times_s]
    return max([window[1], *heard])


def _row(record: RequestRecord, metric: str, end_s: float) -> tuple[Floats, bool]:
    """A request's values, and whether the last of them is still open."""
    if metric == "itl":
        gaps = _gaps(record)
        if record.state != "censored" or not record.chunk_times_s:
            return gaps, False
        pending = max(0.0, _seen_until_s(record, end_s) - record.chunk_times_s[-1])
        return np.append(gaps, pending), True
    value = VALUE_OF[metric](record)
    if not math.isnan(value):
        return np.array([value]), False
    if record.state == "censored":
        return np.array([_seen_s(record, metric, end_s)]), True
    return np.empty(0), False


def _gaps(record: RequestRecord) -> Floats:
    if record.state == "failed":
        return np.full(max(1, record.wanted_output_tokens - 1), math.inf)
    return record.gaps_s()


def _seen_until_s(record: RequestRecord, end_s: float) -> float:
    """When a censored request was cut off; end_s where its record does not tell."""
    return end_s if math.isnan(record.end_s) else record.end_s


def _seen_s(record: RequestRecord, metric: str, end_s: float) -> float:
    """What a censored request's latency is at least."""
    end_s = _seen_until_s(record, end_s)
    if metric == "tpot":
        if not record.chunk_times_s or record.wanted_output_tokens < 2:
            return 0.0
        return max(0.0, end_s - record.first_token_s) / (record.wanted_output_tokens - 1)
    return max(0.0, end_s - record.scheduled_s)


def joined(
    runs: Sequence[tuple[Sequence[RequestRecord], Window]],
) -> tuple[list[RequestRecord], Window, tuple[float, ...]]:
    """Several runs as one: (records of their windows end to end, the whole window, run_ends_s)."""
    records: list[RequestRecord] = []
    ends_s: list[float] = []
    offset_s = 0.0
    for made, window in runs:
        records += [_shifted(r, offset_s - window[0]) for r in in_window(made, window)]
        offset_s += window[1] - window[0]
        ends_s.append(offset_s)
    return records, (0.0, offset_s), tuple(ends_s[:-1])


def _shifted(record: RequestRecord, by_s: float) -> RequestRecord:
    moved = copy.copy(record)
    for name in (
        "scheduled_s", "sent_s", "first_byte_s", "first_token_s", "first_answer_token_s", "end_s",
    ):  # fmt: skip
        setattr(moved, name, getattr(record, name) + by_s)
    moved.chunk_times_s = [at_s + by_s for at_s in record.chunk_times_s]
    return moved
