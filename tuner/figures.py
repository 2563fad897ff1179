"""The figures of a run: every SLO metric, from the records of its window, as an Estimate.

Failed requests have infinite latency and censored ones at least what was seen. Throughput counts
each token of a request that ended well by its own arrival time: a request that crosses an edge of
the window counts with the tokens that arrived inside, whichever side it was scheduled or ended.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tuner.records import RequestRecord
from tuner.slo.grammar import SloSet
from tuner.stats.estimate import Estimate
from tuner.stats.quantiles import cluster_effective_n, quantile, quantile_estimate
from tuner.stats.rates import mean_estimate, rate_estimate, share_estimate

Window = tuple[float, float]
Floats = npt.NDArray[np.float64]

SUMMARY_STATS = ("mean", "p50", "p95", "p99")
LATENCIES = ("ttft", "tpot", "itl", "e2e")

_VALUE: dict[str, Callable[[RequestRecord], float]] = {
    "ttft": lambda record: record.ttft_s,
    "ttfat": lambda record: record.ttfat_s,
    "tpot": lambda record: record.tpot_s,
    "e2e": lambda record: record.e2e_s,
}


def in_window(records: Sequence[RequestRecord], window: Window) -> list[RequestRecord]:
    """Requests scheduled inside the window."""
    return [r for r in records if window[0] <= r.scheduled_s < window[1]]


def latencies(records: Sequence[RequestRecord], metric: str, end_s: float) -> tuple[Floats, Floats]:
    """(known values, lower bounds of censored ones) in seconds; undefined ones are in neither.

    end_s: when the records were cut off, for those that do not tell themselves.
    """
    if metric == "itl":
        pending = [
            max(0.0, _seen_until_s(record, end_s) - record.chunk_times_s[-1])
            for record in records
            if record.state == "censored" and record.chunk_times_s
        ]
        return np.concatenate([np.empty(0), *gap_groups(records)]), np.array(pending)
    value_of = _VALUE[metric]
    known, at_least = [], []
    for record in records:
        value = value_of(record)
        if not math.isnan(value):
            known.append(value)
        elif record.state == "censored":
            at_least.append(_seen_s(record, metric, end_s))
    return np.array(known), np.array(at_least)


def gap_groups(records: Sequence[RequestRecord]) -> list[Floats]:
    """The gaps of each request that has or owes some; a failed one owes as many infinite gaps as
    it was asked for, so that failures weigh what they cost."""
    groups = [
        np.full(max(1, record.wanted_output_tokens - 1), math.inf)
        if record.state == "failed"
        else record.gaps_s()
        for record in records
    ]
    return [group for group in groups if len(group)]


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


def cut_off_s(records: Sequence[RequestRecord], window: Window) -> float:
    """When the last thing was heard of any request."""
    heard = [r.end_s for r in records if not math.isnan(r.end_s)]
    heard += [r.chunk_times_s[-1] for r in records if r.chunk_times_s]
    return max([window[1], *heard])


def latency_estimate(
    records: Sequence[RequestRecord], metric: str, stat: str, window: Window
) -> Estimate:
    """One statistic of a latency; censored requests enter at their lower bound, and nothing bounds
    them from above."""
    inside = in_window(records, window)
    known, at_least = latencies(inside, metric, cut_off_s(records, window))
    values = np.concatenate([known, at_least])
    if len(values) == 0:
        return Estimate.missing("s", f"no request has a {metric}")
    groups = gap_groups(inside) if metric == "itl" else None
    estimate = _statistic(values, stat, groups)
    if len(at_least) == 0:
        return estimate
    worst = _statistic(np.concatenate([known, np.full(len(at_least), math.inf)]), stat, groups)
    method = f"{estimate.method}; {len(at_least)} unfinished at what was seen"
    return replace(estimate, high=worst.high, method=method)


def _statistic(values: Floats, stat: str, groups: list[Floats] | None) -> Estimate:
    """mean, min, max or pNN of values in seconds; groups: those that depend on each other."""
    if stat == "mean":
        return mean_estimate(values, "s")
    if stat in ("min", "max"):
        value = float(values.min() if stat == "min" else values.max())
        return Estimate(value, value, value, len(values), "s", f"observed {stat}imum")
    q = float(stat[1:]) / 100
    if groups is None:
        return quantile_estimate(values, q, "s")
    effective = cluster_effective_n(groups, quantile(np.sort(values), q))
    return quantile_estimate(values, q, "s", effective_n=effective)


def throughput(
    records: Sequence[RequestRecord], window: Window, *, with_prompt: bool = False
) -> Estimate:
    """Tokens of good requests per second; prompt tokens count when their first token came."""
    good = [record for record in records if record.ok]
    times: list[float] = []
    weights: list[float] = []
    for record in good:
        times += record.chunk_times_s
        weights += record.chunk_tokens
        if with_prompt:
            times.append(record.first_token_s)
            weights.append(record.prompt_tokens)
    return rate_estimate(np.array(times), np.array(weights), *window, "tok/s", len(good))


def request_rate(
    records: Sequence[RequestRecord], window: Window, counts: Callable[[RequestRecord], bool]
) -> Estimate:
    """Requests that ended inside the window and count, per second."""
    chosen = [record for record in records if record.ok and counts(record)]
    times = np.array([record.end_s for record in chosen])
    return rate_estimate(times, np.ones(len(times)), *window, "req/s", len(chosen))


def meets(record: RequestRecord, bounds_s: dict[str, float]) -> bool:
    """Whether a request ended well within every bound of its own latencies.

    An undefined latency (TPOT of one token) holds; itl and queue are no figures of one request.
    """
    if not record.ok:
        return False
    for metric, bound in bounds_s.items():
        value_of = _VALUE.get(metric)
        if value_of is not None:
            value = value_of(record)
            if not math.isnan(value) and value > bound:
                return False
    return True


def figure(
    records: Sequence[RequestRecord],
    window: Window,
    key: str,
    slos: SloSet,
    *,
    price_per_hour: float | None = None,
) -> Estimate:
    """The Estimate behind a clause key: "ttft_p95", "output_tps", "error_rate"…"""
    metric, _, stat = key.partition("_")
    if metric in LATENCIES or metric == "ttfat":
        return latency_estimate(records, metric, stat, window)
    inside = in_window(records, window)
    bounds = slos.latency_bounds_s
    if key == "output_tps":
        return throughput(records, window)
    if key == "total_tps":
        return throughput(records, window, with_prompt=True)
    if key == "rps":
        return request_rate(records, window, lambda _: True)
    if key == "goodput":
        return request_rate(records, window, lambda record: meets(record, bounds))
    if key == "error_rate":
        return share_estimate(sum(r.state == "failed" for r in inside), len(inside))
    if key == "attainment":
        return share_estimate(sum(meets(r, bounds) for r in inside), len(inside))
    if key == "cost_per_mtok":
        return _cost(throughput(records, window), price_per_hour)
    return Estimate.missing("", f"{key} is not measured by the load generator")


def summary(
    records: Sequence[RequestRecord],
    window: Window,
    slos: SloSet,
    price_per_hour: float | None = None,
) -> dict[str, Estimate]:
    """The figures every report shows, by clause key, and those the SLOs name."""
    keys = [f"{metric}_{stat}" for metric in LATENCIES for stat in SUMMARY_STATS]
    keys += ["output_tps", "total_tps", "rps", "error_rate"]
    if slos.latency_bounds_s:
        keys += ["goodput", "attainment"]
    named = [clause.key for clause in slos.clauses if clause.metric not in ("queue", "accuracy")]
    keys += [key for key in dict.fromkeys(named) if key not in keys]
    if price_per_hour is not None and "cost_per_mtok" not in keys:
        keys.append("cost_per_mtok")
    return {key: figure(records, window, key, slos, price_per_hour=price_per_hour) for key in keys}


def lag_p99_s(records: Sequence[RequestRecord]) -> float:
    """p99 of sent − scheduled: the generator's own delay."""
    lags = np.sort([r.sent_s - r.scheduled_s for r in records if not math.isnan(r.sent_s)])
    return quantile(lags, 0.99) if len(lags) else 0.0


def failure_reasons(records: Sequence[RequestRecord], most: int = 3) -> list[tuple[str, int]]:
    """The commonest errors with their counts."""
    return Counter(r.error for r in records if r.state == "failed").most_common(most)


def _cost(tps: Estimate, price_per_hour: float | None) -> Estimate:
    if price_per_hour is None:
        return Estimate.missing("$", "give --price-per-hour")
    hourly = price_per_hour / 3600 * 1e6

    def per(rate: float) -> float:
        return hourly / rate if rate > 0 else math.inf

    return Estimate(
        per(tps.value), per(tps.high), per(tps.low), tps.n, "$", f"price / ({tps.method})"
    )
