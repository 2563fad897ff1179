"""Two sides, the same load: is B better than A in each figure? From records and windows alone.

Requests are paired by (session, turn) where both sides asked for the same lengths, so that lengths
and arrivals, which common random numbers make equal, cancel. Runs of a side are paired in order. A
request that failed has infinite latency on its side; one still running counts as what was seen and
as never, and both must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
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


def compare_runs(a: Side, b: Side, keys: Sequence[str], slos: SloSet) -> dict[str, Comparison]:
    """B against A in each figure ("ttft_p95", "output_tps", "goodput", "error_rate"…), by key.

    slos: what goodput and attainment count. Runs without a partner enter a and b of a Comparison
    only. Raises ValueError for a side without runs or a key that records do not show.
    """
    if not a or not b:
        raise ValueError("a comparison needs at least one run on each side")
    return {key: _compare(a, b, key, slos) for key in keys}


def side_estimate(side: Side, key: str, slos: SloSet) -> Estimate:
    """A figure of one side over all its runs, with the spread between them."""
    if key in figures.RATES:
        return mean_of_runs([figures.figure(*run, key, slos) for run in side])
    if len(side) == 1:
        return figures.figure(*side[0], key, slos)
    records, window, run_ends_s = joined(side)
    return figures.figure(records, window, key, slos, run_ends_s=run_ends_s)


def _compare(a: Side, b: Side, key: str, slos: SloSet) -> Comparison:
    metric, _, stat = key.partition("_")
    estimates = side_estimate(a, key, slos), side_estimate(b, key, slos)
    pairs = list(zip(a, b, strict=False))
    latency = metric in METRICS and METRICS[metric].per_request and metric != "queue" and stat
    if key not in (*figures.SHARES, *figures.RATES) and not latency:
        raise ValueError(f"{key} is no figure that two runs' records can be compared in")
    if missing := next((one for one in estimates if not one.measured), None):
        found = inconclusive(0, f"a side has no {key}: {missing.reason}")
    elif key in figures.SHARES:
        found = compare_shares(*estimates, higher_is_better=key in MORE_IS_BETTER)
    elif key in figures.RATES:
        ratios = [_rate_ratio(*pair, key, slos, seed) for seed, pair in enumerate(pairs)]
        found = combined(ratios, higher_is_better=True, method="bootstrap over slices of time")
    else:
        found = _compare_latency(pairs, metric, stat)
    return replace(found, a=estimates[0], b=estimates[1])


def _compare_latency(pairs: Sequence[tuple[Run, Run]], metric: str, stat: str) -> Comparison:
    if stat in ("min", "max"):
        return inconclusive(0, f"an observed {stat}imum has no interval")
    ratios: list[LogRatio] = []
    paired, counts = 0, np.zeros(2, dtype=int)
    for seed, (one, other) in enumerate(pairs):
        x, y = _samples(one, metric), _samples(other, metric)
        if not len(x.values) or not len(y.values):
            return inconclusive(0, f"a run has no {metric}")
        counts += np.array([_independent(side, stat) for side in (x, y)])
        shared = _shared(x, y, _unlike(one, other))
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


def _unlike(one: Run, other: Run) -> set[tuple[int, int]]:
    """(session, turn) of requests that were asked for other lengths on either side."""
    asked = [
        {(r.session, r.turn): (r.wanted_prompt_tokens, r.wanted_output_tokens) for r in records}
        for records, _ in (one, other)
    ]
    return {
        name
        for name in asked[0].keys() & asked[1].keys()
        if any(a and b and a != b for a, b in zip(asked[0][name], asked[1][name], strict=True))
    }


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


def _rate_ratio(one: Run, other: Run, key: str, slos: SloSet, seed: int) -> LogRatio:
    """Equal slices of both windows: under common random numbers they hold the same load."""
    binned = [_binned(run, key, slos) for run in (one, other)]
    blocks = block_count(*binned)
    edges = [0, *_edges(BINS, blocks)]
    sides = [
        RatioOfSums(
            np.add.reduceat(amounts, edges[:-1]),
            np.diff(edges) * (window[1] - window[0]) / BINS,
        )
        for amounts, (_, window) in zip(binned, (one, other), strict=True)
    ]
    n = min(figures.figure(*run, key, slos).n for run in (one, other))
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
