"""The figures of a run: every SLO metric, from the records of its window, as an Estimate.

Failed requests have infinite latency and censored ones at least what was seen. Throughput counts
each token of a request that ended well by its own arrival time: a request that crosses an edge of
the window counts with the tokens that arrived inside, whichever side it was scheduled or ended.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tuner.figures.samples import (
    VALUE_OF,
    Samples,
    Window,
    cut_off_s,
    in_order,
    in_window,
    run_lengths,
    samples,
)
from tuner.records import RequestRecord
from tuner.slo.grammar import SloSet
from tuner.stats.estimate import CONFIDENCE, Estimate
from tuner.stats.quantiles import quantile_estimate
from tuner.stats.rates import mean_estimate, mean_of_runs, rate_estimate, share_estimate
from tuner.stats.runs import RunNoise
from tuner.stats.sections import quantile
from tuner.units import count_text

Floats = npt.NDArray[np.float64]

SUMMARY_STATS = ("mean", "p50", "p95", "p99")
LATENCIES = ("ttft", "tpot", "itl", "e2e")
RATES = ("output_tps", "total_tps", "rps", "goodput")
SHARES = ("error_rate", "attainment")


def latencies(records: Sequence[RequestRecord], metric: str, end_s: float) -> tuple[Floats, Floats]:
    """(known values, lower bounds of censored ones) in seconds; undefined ones are in neither."""
    found = samples(records, metric, end_s)
    return found.values[~found.is_open], found.values[found.is_open]


def latency_estimate(
    records: Sequence[RequestRecord],
    metric: str,
    stat: str,
    window: Window,
    *,
    run_ends_s: Sequence[float] = (),
    noise: RunNoise | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """One statistic of a latency; censored requests enter at their lower bound, and nothing bounds
    them from above."""
    found = samples(in_window(records, window), metric, cut_off_s(records, window), run_ends_s)
    if len(found.values) == 0:
        return Estimate.missing("s", f"no request has a {metric}")
    estimate = _statistic(found.values, stat, found, noise, confidence)
    if not found.unfinished:
        return estimate
    if estimate.value == 0 and found.unseen and not (found.values == 0)[~found.is_open].any():
        still = count_text(found.unfinished, "unfinished request")
        return Estimate.missing("s", f"{still} had shown no {metric}")
    worst = _statistic(found.at_worst(), stat, found, noise, confidence)
    method = f"{estimate.method}; {found.unfinished} unfinished at what was seen"
    return replace(estimate, high=worst.high, method=method)


def _statistic(
    values: Floats, stat: str, found: Samples, noise: RunNoise | None, confidence: float
) -> Estimate:
    """mean, min, max or pNN of values in seconds, dependent as the samples found are."""
    if stat == "mean":
        return mean_estimate(
            values, "s", sizes=found.sizes, runs=found.runs, noise=noise, confidence=confidence
        )
    if stat in ("min", "max"):
        value = float(values.min() if stat == "min" else values.max())
        return Estimate(value, value, value, len(values), "s", f"observed {stat}imum")
    return quantile_estimate(
        values, float(stat[1:]) / 100, "s",
        sizes=found.sizes, runs=found.runs, noise=noise, confidence=confidence,
    )  # fmt: skip


def throughput(
    records: Sequence[RequestRecord],
    window: Window,
    *,
    with_prompt: bool = False,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Tokens of good requests per second; prompt tokens count when their first token came. n: the
    requests of which a token came inside the window."""
    n = sum(_came_inside(record, window) for record in records if record.ok)
    if not n and (why := _why_no_rate(records, window)):
        return Estimate.missing("tok/s", why)
    times, weights = token_events(records, with_prompt=with_prompt)
    return rate_estimate(times, weights, *window, "tok/s", n, confidence=confidence)


def token_events(
    records: Sequence[RequestRecord], *, with_prompt: bool = False
) -> tuple[Floats, Floats]:
    """(arrival times in seconds, tokens) of every chunk of a good request."""
    times: list[float] = []
    weights: list[float] = []
    for record in records:
        if not record.ok:
            continue
        times += record.chunk_times_s
        weights += record.chunk_tokens
        if with_prompt:
            times.append(record.first_token_s)
            weights.append(record.prompt_tokens)
    return np.array(times), np.array(weights, dtype=float)


def _came_inside(record: RequestRecord, window: Window) -> bool:
    """Whether a token of the record came inside the window."""
    times = record.chunk_times_s
    first = bisect.bisect_left(times, window[0])
    return first < len(times) and times[first] < window[1]


def _why_no_rate(records: Sequence[RequestRecord], window: Window) -> str:
    """Why nothing that was counted inside the window is no rate of 0; "" where requests only
    failed, which is one."""
    states = [record.state for record in in_window(records, window)]
    if "censored" in states:
        return f"none of {count_text(len(states), 'request')} had ended well before the cut-off"
    return "" if "failed" in states else "no request ended inside the window"


def request_rate(
    records: Sequence[RequestRecord],
    window: Window,
    counts: Callable[[RequestRecord], bool],
    *,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Requests that ended well inside the window and count, per second. n: all that ended well
    inside."""
    ended = [r for r in records if r.ok and window[0] <= r.end_s < window[1]]
    if not ended and (why := _why_no_rate(records, window)):
        return Estimate.missing("req/s", why)
    times = np.array([record.end_s for record in ended if counts(record)])
    return rate_estimate(
        times, np.ones(len(times)), *window, "req/s", len(ended), confidence=confidence
    )


def meets(record: RequestRecord, bounds_s: dict[str, float]) -> bool:
    """Whether a request ended well within every bound of its own latencies.

    An undefined latency (TPOT of one token) holds; itl and queue are no figures of one request.
    """
    if not record.ok:
        return False
    for metric, bound in bounds_s.items():
        value_of = VALUE_OF.get(metric)
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
    run_ends_s: Sequence[float] = (),
    noise: RunNoise | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The Estimate behind a clause key: "ttft_p95", "output_tps", "error_rate"…

    run_ends_s: where one of several pooled runs ends and the next begins; latencies and shares
    then contain the noise between runs. Rates of pooled runs are tuner.stats.mean_of_runs of each
    run's. noise: between runs, of this figure, as tuner.stats.run_noise has it from a whole study;
    without one a single run's interval speaks of that run only.
    """
    metric, _, stat = key.partition("_")
    if metric in LATENCIES or metric == "ttfat":
        return latency_estimate(
            records, metric, stat, window,
            run_ends_s=run_ends_s, noise=noise, confidence=confidence,
        )  # fmt: skip
    bounds = slos.latency_bounds_s
    if key in SHARES:
        inside = in_order(in_window(records, window))
        hits = [share_hit(record, key, bounds) for record in inside]
        runs = run_lengths([record.scheduled_s for record in inside], run_ends_s)
        return share_estimate(
            np.array(hits, dtype=float), runs=runs, noise=noise, confidence=confidence
        )
    rate = _rate(records, window, key, bounds, price_per_hour, confidence)
    return rate if noise is None or not rate.measured else mean_of_runs(
        [rate], confidence, noise=noise
    )  # fmt: skip


def _rate(
    records: Sequence[RequestRecord],
    window: Window,
    key: str,
    bounds: dict[str, float],
    price_per_hour: float | None,
    confidence: float,
) -> Estimate:
    """Of one window; several runs end to end are not told apart."""
    if key == "output_tps":
        return throughput(records, window, confidence=confidence)
    if key == "total_tps":
        return throughput(records, window, with_prompt=True, confidence=confidence)
    if key == "rps":
        return request_rate(records, window, lambda _: True, confidence=confidence)
    if key == "goodput":
        return request_rate(records, window, lambda r: meets(r, bounds), confidence=confidence)
    if key == "cost_per_mtok":
        return _cost(throughput(records, window, confidence=confidence), price_per_hour)
    return Estimate.missing("", f"{key} is not measured by the load generator")


def share_hit(record: RequestRecord, key: str, bounds_s: dict[str, float]) -> bool:
    """Whether a request counts for error_rate or attainment."""
    return record.state == "failed" if key == "error_rate" else meets(record, bounds_s)


def summary(
    records: Sequence[RequestRecord],
    window: Window,
    slos: SloSet,
    price_per_hour: float | None = None,
    run_ends_s: Sequence[float] = (),
    noise: Mapping[str, RunNoise] | None = None,
) -> dict[str, Estimate]:
    """The figures every report shows, by clause key, and those the SLOs name. noise: by key."""
    keys = [f"{metric}_{stat}" for metric in LATENCIES for stat in SUMMARY_STATS]
    keys += ["output_tps", "total_tps", "rps", "error_rate"]
    if slos.latency_bounds_s:
        keys += ["goodput", "attainment"]
    named = [clause.key for clause in slos.clauses if clause.metric not in ("queue", "accuracy")]
    keys += [key for key in dict.fromkeys(named) if key not in keys]
    if price_per_hour is not None and "cost_per_mtok" not in keys:
        keys.append("cost_per_mtok")
    known = noise or {}
    return {
        key: figure(
            records,
            window,
            key,
            slos,
            price_per_hour=price_per_hour,
            run_ends_s=run_ends_s,
            noise=known.get(key),
        )
        for key in keys
    }


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
    if not tps.measured:
        return Estimate.missing("$", tps.reason)
    hourly = price_per_hour / 3600 * 1e6

    def per(rate: float) -> float:
        return hourly / rate if rate > 0 else math.inf

    return Estimate(
        per(tps.value), per(tps.high), per(tps.low), tps.n, "$", f"price / ({tps.method})"
    )
