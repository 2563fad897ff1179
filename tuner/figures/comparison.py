"""Two sides, the same load: is B better than A in each figure? From records and windows alone.

Requests are paired by (session, turn) where both sides asked for the same lengths, so that lengths
and arrivals, which common random numbers make equal, cancel. Runs of a side are paired in order. A
request that failed has infinite latency on its side; one still running counts as what was seen and
as never, and both must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tuner import figures
from tuner.figures.samples import Samples, Window, cut_off_s, in_window, joined, samples
from tuner.records import RequestRecord
from tuner.slo.grammar import SloSet
from tuner.slo.names import METRICS
from tuner.stats.compare import (
    Comparison,
    LogRatio,
    RatioOfSums,
    Statistic,
    block_count,
    block_quantile,
    combined,
    compare_shares,
    inconclusive,
    judged,
    log_ratio,
)
from tuner.stats.estimate import Estimate
from tuner.stats.quantiles import bounded, independent_n
from tuner.stats.rates import mean_of_runs
from tuner.stats.sections import quantile

Floats = npt.NDArray[np.float64]
Run = tuple[Sequence[RequestRecord], Window]
Side = Sequence[Run]
"""Runs of one configuration: (records, window in seconds on their clock)."""

MORE_IS_BETTER = frozenset({*figures.RATES, "attainment"})
FEWEST_PAIRS = 10
SHARED = 0.8
"""Requests are paired when at least this share of the smaller side has a partner."""

BINS = 120


@dataclass(frozen=True)
class Pair:
    """A run of each side, measured one after the other."""

    a: Run
    b: Run

    @cached_property
    def unlike(self) -> set[tuple[int, int]]:
        """(session, turn) of requests that were asked for other lengths on either side."""
        a, b = (
            {(r.session, r.turn): (r.wanted_prompt_tokens, r.wanted_output_tokens) for r in records}
            for records, _ in (self.a, self.b)
        )
        return {
            name
            for name in a.keys() & b.keys()
            if any(x and y and x != y for x, y in zip(a[name], b[name], strict=True))
        }


def compare_runs(a: Side, b: Side, keys: Sequence[str], slos: SloSet) -> dict[str, Comparison]:
    """B against A in each figure ("ttft_p95", "output_tps", "goodput", "error_rate"…), by key.

    slos: what goodput and attainment count. Runs without a partner enter a and b of a Comparison
    only. Raises ValueError for a side without runs or a key that records do not show.
    """
    if not a or not b:
        raise ValueError("a comparison needs at least one run on each side")
    pairs = [Pair(*pair) for pair in zip(a, b, strict=False)]
    return {key: _compare(a, b, pairs, key, slos) for key in keys}


def _estimates(side: Side, key: str, slos: SloSet) -> list[Estimate]:
    """A rate of each run; any other figure of all runs together."""
    if key in figures.RATES or len(side) == 1:
        return [figures.figure(*run, key, slos) for run in side]
    records, window, run_ends_s = joined(side)
    return [figures.figure(records, window, key, slos, run_ends_s=run_ends_s)]


def _over_runs(estimates: Sequence[Estimate], key: str) -> Estimate:
    return mean_of_runs(estimates) if key in figures.RATES else estimates[0]


def _compare(a: Side, b: Side, pairs: Sequence[Pair], key: str, slos: SloSet) -> Comparison:
    metric, _, stat = key.partition("_")
    each = [_estimates(side, key, slos) for side in (a, b)]
    one, other = (_over_runs(estimates, key) for estimates in each)
    latency = metric in METRICS and METRICS[metric].per_request and metric != "queue" and stat
    if key not in (*figures.SHARES, *figures.RATES) and not latency:
        raise ValueError(f"{key} is no figure that two runs' records can be compared in")
    if missing := next((side for side in (one, other) if not side.measured), None):
        found = inconclusive(0, f"a side has no {key}: {missing.reason}")
    elif key in figures.SHARES:
        found = compare_shares(one, other, higher_is_better=key in MORE_IS_BETTER)
    elif key in figures.RATES:
        counts = [min(x.n, y.n) for x, y in zip(*each, strict=False)]
        ratios = [
            _rate_ratio(pair, key, slos, n, seed)
            for seed, (pair, n) in enumerate(zip(pairs, counts, strict=True))
        ]
        found = combined(ratios, higher_is_better=True, method="bootstrap over slices of time")
    else:
        found = _compare_latency(pairs, metric, stat)
    return replace(found, a=one, b=other)


def _compare_latency(pairs: Sequence[Pair], metric: str, stat: str) -> Comparison:
    if stat in ("min", "max"):
        return inconclusive(0, f"an observed {stat}imum has no interval")
    ratios: list[LogRatio] = []
    paired, counts = 0, np.zeros(2, dtype=int)
    for seed, pair in enumerate(pairs):
        x, y = _samples(pair.a, metric), _samples(pair.b, metric)
        if not len(x.values) or not len(y.values):
            return inconclusive(0, f"a run has no {metric}")
        counts += np.array([_independent(side, stat) for side in (x, y)])
        shared = _shared(x, y, pair.unlike)
        if shared is not None:
            x, y = shared
            paired += 1
        ratios.append(_latency_ratio(x, y, stat, paired=shared is not None, seed=seed))
    if paired == len(pairs):
        method = "paired by request, block bootstrap"
    else:
        method = "requests not paired, block bootstrap"
    if stat == "mean" and any(math.isnan(r.value) or math.isinf(r.value) for r in ratios):
        return inconclusive(
            sum(r.n for r in ratios),
            "a failed request makes the mean infinite: compare a percentile and error_rate",
        )
    found = combined(ratios, higher_is_better=False, method=method)
    return found if stat == "mean" else _opened(found, float(stat[1:]) / 100, *counts)


def _independent(found: Samples, stat: str) -> int:
    """How many independent samples there are for a percentile at most."""
    if stat == "mean":
        return len(found.names)
    return independent_n(found.values, float(stat[1:]) / 100, found.sizes)


def _opened(found: Comparison, q: float, n_a: int, n_b: int) -> Comparison:
    """The comparison with an end left open by each percentile that n samples leave open, as its
    own interval is: resampling never draws a slower request than the slowest seen."""
    low, high = found.low, found.high
    if not bounded(q, n_a) or not bounded(1 - q, n_b):
        low = 0.0
    if not bounded(q, n_b) or not bounded(1 - q, n_a):
        high = math.inf
    if (low, high) == (found.low, found.high) or math.isnan(found.ratio):
        return found
    logs = [math.log(end) if end else -math.inf for end in (found.ratio, low, high)]
    method = f"{found.method}; {min(n_a, n_b)} requests leave an end of a p{100 * q:g} open"
    return judged(logs[0], logs[1], logs[2], found.n, False, method)


def _samples(run: Run, metric: str) -> Samples:
    records, window = run
    return samples(in_window(records, window), metric, cut_off_s(records, window))


def _shared(x: Samples, y: Samples, unlike: set[tuple[int, int]]) -> tuple[Samples, Samples] | None:
    """Both sides cut to the requests that both have, in A's order; None with too few."""
    at = {name: i for i, name in enumerate(y.names) if name not in unlike}
    both = [(i, at[name]) for i, name in enumerate(x.names) if name in at]
    if len(both) < max(FEWEST_PAIRS, SHARED * min(len(x.names), len(y.names))):
        return None
    return x.only([i for i, _ in both]), y.only([j for _, j in both])


def _latency_ratio(x: Samples, y: Samples, stat: str, *, paired: bool, seed: int) -> LogRatio:
    """Open samples as seen and as never: the interval holds both."""
    if not x.unfinished and not y.unfinished:
        return _ratio(x, y, x.values, y.values, stat, paired, seed)
    seen = _ratio(x, y, x.values, y.values, stat, paired, seed)
    if stat == "mean":
        return replace(
            seen,
            low=-math.inf if x.unfinished else seen.low,
            high=math.inf if y.unfinished else seen.high,
        )
    least = _ratio(x, y, x.at_worst(), y.values, stat, paired, seed)
    most = _ratio(x, y, x.values, y.at_worst(), stat, paired, seed)
    return replace(seen, low=min(seen.low, least.low), high=max(seen.high, most.high))


def _ratio(
    x: Samples, y: Samples, a: Floats, b: Floats, stat: str, paired: bool, seed: int
) -> LogRatio:
    n = min(len(x.names), len(y.names))
    blocks = block_count(_series(x, a, stat), _series(y, b, stat))
    return log_ratio(
        _statistic(x, a, stat, blocks), _statistic(y, b, stat, blocks), n, paired=paired, seed=seed
    )


def _series(found: Samples, values: Floats, stat: str) -> Floats:
    """One number per request whose autocorrelation is that of the statistic."""
    if stat == "mean":
        each = np.where(np.isfinite(values), values, 0.0)
    else:
        q = float(stat[1:]) / 100
        each = (values > quantile(np.sort(values), min(q, 1 - 10 / max(20, len(values))))) * 1.0
    if found.sizes is None:
        return each
    ends = np.cumsum(found.sizes).astype(int)
    sums: Floats = np.diff(np.concatenate([[0.0], np.cumsum(each)])[np.concatenate([[0], ends])])
    residuals: Floats = sums - each.mean() * found.sizes
    return residuals


def _statistic(found: Samples, values: Floats, stat: str, blocks: int) -> Statistic:
    n = len(found.names)
    edges = _edges(n, blocks)
    if stat != "mean":
        return block_quantile(values, float(stat[1:]) / 100, edges, found.sizes)
    sizes = np.ones(n) if found.sizes is None else found.sizes
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)[[0, *edges]]
    amounts = np.array([values[i:j].sum() for i, j in pairwise(starts)])
    return RatioOfSums(amounts, np.diff(starts).astype(float))


def _rate_ratio(pair: Pair, key: str, slos: SloSet, n: int, seed: int) -> LogRatio:
    """Equal slices of both windows: under common random numbers they hold the same load. n: the
    samples of the side that has fewer."""
    binned = [_binned(run, key, slos) for run in (pair.a, pair.b)]
    blocks = block_count(*binned)
    edges = [0, *_edges(BINS, blocks)]
    sides = [
        RatioOfSums(
            np.add.reduceat(amounts, edges[:-1]),
            np.diff(edges) * (window[1] - window[0]) / BINS,
        )
        for amounts, (_, window) in zip(binned, (pair.a, pair.b), strict=True)
    ]
    return log_ratio(sides[0], sides[1], n, paired=True, seed=seed)


def _binned(run: Run, key: str, slos: SloSet) -> Floats:
    records, window = run
    if key in ("output_tps", "total_tps"):
        times, weights = figures.token_events(records, with_prompt=key == "total_tps")
    else:
        counts: Callable[[RequestRecord], bool] = (
            (lambda record: figures.meets(record, slos.latency_bounds_s))
            if key == "goodput"
            else (lambda record: True)
        )
        times = np.array([r.end_s for r in records if r.ok and counts(r)])
        weights = np.ones(len(times))
    amounts, _ = np.histogram(times, bins=BINS, range=window, weights=weights)
    return amounts


def _edges(n: int, blocks: int) -> list[int]:
    """Where each of the blocks of about equal length ends."""
    return [round((i + 1) * n / blocks) for i in range(blocks)]
