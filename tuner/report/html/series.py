"""A run's records as the few hundred points a chart can show.

Invariant: no series is longer than its limit whatever the run's length, and extremes survive: the
thinned part of a distribution is its middle, of a scatter its unremarkable points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.exchange.distributions import in_flight
from tuner.exchange.run import Run, in_window

Floats = npt.NDArray[np.float64]

CDF_POINTS = 400
BINS = 120
FLIGHT_POINTS = 500
MOST_DOTS = 1200
SLOWEST_DOTS = 200
MOST_CROSSES = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """A run's requests as arrays, seconds since the run began; NaN for what never came.

    good, failed, inside: masks. end: last token, or when the request ended otherwise. wanted: the
    output tokens that were asked for.
    """

    scheduled: Floats
    sent: Floats
    first: Floats
    end: Floats
    output: Floats
    prompt: Floats
    wanted: Floats
    good: npt.NDArray[np.bool_]
    failed: npt.NDArray[np.bool_]
    inside: npt.NDArray[np.bool_]
    chunk_times: Floats
    chunk_tokens: Floats
    chunk_counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, run: Run) -> Frame:
        def column(name: str) -> Floats:
            return np.asarray(run.columns[name], dtype=float)

        times, ends = run.columns["chunk_times_s"], column("end_s")
        counts = np.array([len(t) for t in times], dtype=np.int64)
        last = np.array([t[-1] if len(t) else math.nan for t in times], dtype=float)
        states = np.array(run.columns["state"])
        good = states == "ok"
        return cls(
            scheduled=column("scheduled_s"), sent=column("sent_s"), first=column("first_token_s"),
            end=np.where(good & ~np.isnan(last), last, ends), output=column("output_tokens"),
            prompt=column("prompt_tokens"), wanted=column("wanted_output_tokens"), good=good,
            failed=states == "failed", inside=in_window(run), chunk_times=_flat(times),
            chunk_tokens=_flat(run.columns["chunk_tokens"]), chunk_counts=counts,
        )  # fmt: skip

    @property
    def last_s(self) -> float:
        """When the last thing was seen."""
        known = self.end[np.isfinite(self.end)]
        seen = [
            float(part.max()) for part in (known, self.scheduled, self.chunk_times) if len(part)
        ]
        return max(seen, default=1.0)

    def latencies(self, metric: str) -> Floats:
        """Of the window's requests, seconds: infinite when failed, and where a request was still
        running: it is longer than all that is drawn. Undefined ones (TPOT of one token) are out."""
        if metric == "itl":
            return self._gaps()
        value = {
            "ttft": self.first - self.scheduled,
            "e2e": self.end - self.scheduled,
            "tpot": self._tpot(),
        }[metric]
        never = self.failed | (~self.good & (np.isnan(self.first) | (metric != "ttft")))
        value = np.where(never, math.inf, value)
        return value[self.inside & ~np.isnan(value)]

    def _tpot(self) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.output > 1, (self.end - self.first) / (self.output - 1), math.nan)

    def _gaps(self) -> Floats:
        """Gaps between tokens of the window's good requests; a chunk of k is k gaps. A failed one
        owes as many infinite gaps as it was asked for, as in tuner.figures."""
        owner = np.repeat(np.arange(len(self.good)), self.chunk_counts)
        use = (self.good & self.inside)[owner] & (self.chunk_tokens > 0)
        times, tokens, owner = self.chunk_times[use], self.chunk_tokens[use], owner[use]
        same = owner[1:] == owner[:-1]
        counts = tokens[1:][same]
        gaps = (times[1:] - times[:-1])[same] / counts
        owed = np.maximum(1, self.wanted[self.failed & self.inside] - 1).sum()
        infinite = np.full(int(owed), math.inf)
        return np.concatenate([np.repeat(gaps, counts.astype(np.int64)), infinite])


def cdf(values: Floats) -> tuple[Floats, Floats]:
    """(finite values ascending, share of all that are at most that), at most CDF_POINTS."""
    ordered = np.sort(values)
    finite = ordered[np.isfinite(ordered)]
    n, all_ = len(finite), len(ordered)
    if n == 0:
        return np.empty(0), np.empty(0)
    if n <= CDF_POINTS:
        at = np.arange(n)
    else:  # half of the points in the upper tenth, where SLOs are decided
        even = np.linspace(0, n - 1, CDF_POINTS // 2)
        tail = n - 1 - np.geomspace(1, n / 10, CDF_POINTS // 2 - 2)
        at = np.unique(np.concatenate([[0, n - 1], even, tail]).astype(np.int64))
    return finite[at], (at + 1) / all_


@dataclass(frozen=True, slots=True)
class Binned:
    """Values over time: middle, low and high (p5, p95) of each bin."""

    at: Floats
    middle: Floats
    low: Floats
    high: Floats


def over_time(at: Floats, values: Floats, end_s: float) -> Binned:
    """Medians and 5 to 95 % bands in BINS equal bins; NaN where a bin is empty."""
    edges = np.linspace(0, max(end_s, 1e-9), BINS + 1)
    which = np.clip(np.digitize(at, edges) - 1, 0, BINS - 1)
    parts = np.full((3, BINS), math.nan)
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(BINS + 1))
    for bin_, (i, j) in enumerate(pairwise(starts.tolist())):
        if j > i:
            parts[:, bin_] = np.quantile(values[order[i:j]], [0.5, 0.05, 0.95])
    return Binned((edges[:-1] + edges[1:]) / 2, *parts)


def tokens_per_second(frame: Frame, end_s: float) -> tuple[Floats, Floats]:
    """(bin starts, output tokens of good requests per second) over the whole run."""
    owner = np.repeat(np.arange(len(frame.good)), frame.chunk_counts)
    use = frame.good[owner]
    bins = max(10, min(BINS, int(end_s * 2)))
    edges = np.linspace(0, max(end_s, 1e-9), bins + 1)
    sums, _ = np.histogram(frame.chunk_times[use], bins=edges, weights=frame.chunk_tokens[use])
    rates = sums / np.diff(edges)
    return edges, np.append(rates, rates[-1])


def flight(frame: Frame, end_s: float) -> tuple[Floats, Floats]:
    """(times, requests in flight from then on); thinned to each stretch's peak."""
    ends = np.where(np.isnan(frame.end), end_s, frame.end)
    times, level = in_flight(frame.sent, ends)
    times, level = np.concatenate([[0.0], times]), np.concatenate([[0.0], level])
    if len(times) <= FLIGHT_POINTS:
        return times, level
    edges = np.linspace(0, end_s, FLIGHT_POINTS + 1)[:-1]
    starts = np.unique(np.searchsorted(times, edges).clip(0, len(times) - 1))
    return times[starts], np.maximum.reduceat(level, starts)


def dots(at: Floats, values: Floats) -> npt.NDArray[np.int64]:
    """Which points to draw: all of a few, of many the slowest."""
    if len(at) <= MOST_DOTS:
        return np.arange(len(at))
    slowest: npt.NDArray[np.int64] = np.argsort(values)[-SLOWEST_DOTS:]
    return slowest


def thin(at: Floats, most: int) -> Floats:
    return at if len(at) <= most else at[np.linspace(0, len(at) - 1, most).astype(np.int64)]


def slowest(frame: Frame, most: int = 10) -> npt.NDArray[np.int64]:
    """Rows of the window's slowest good requests by E2E, slowest first."""
    rows = np.flatnonzero(frame.inside & frame.good & np.isfinite(frame.end))
    order = np.argsort((frame.end - frame.scheduled)[rows], kind="stable")
    chosen: npt.NDArray[np.int64] = rows[order[::-1][:most]]
    return chosen


def _flat(ragged: Any) -> Floats:
    parts = [np.asarray(part, dtype=float) for part in ragged]
    return np.concatenate(parts) if parts else np.empty(0)
