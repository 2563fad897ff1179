"""Is a percentile so far from its bound that the spread between runs cannot bridge it?

The distribution-free interval of pooled runs is wide where runs differ, however far the bound is:
without exceedances it learns nothing from the distance. Here the distance counts. Each run gives
one number, a percentile of its own, taken as normal over runs on a log scale. Simulated in
tests/tuner/search: no more false answers than nominal, under run effects, heavy tails and
autocorrelation alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import nct, norm, t

from tuner.figures import LATENCIES
from tuner.measure import Measurement
from tuner.samples import cut_off_s, samples
from tuner.slo import Clause

FEWEST_RUNS = 3


def safely_below(made: Sequence[Measurement], clause: Clause, confidence: float) -> bool:
    """Of an upper bound on a percentile of a request latency, one-sided at this confidence.

    For p95: all but 2.5 % of runs have their p97.5 below the bound (a tolerance bound by the
    noncentral t, e.g. Hahn & Meeker 1991), so at most 5 % of all requests exceed it.
    """
    if not _applies(made, clause):
        return False
    beyond = (1 - (clause.quantile or 0.0)) / 2
    logs = [_log_quantile(one, clause.metric, 1 - beyond) for one in made]
    if not all(map(math.isfinite, logs)):
        return False
    return upper_bound(logs, beyond, confidence) < math.log(clause.bound)


def safely_above(made: Sequence[Measurement], clause: Clause, confidence: float) -> bool:
    """The contrary. For p95: the typical run has its p90 above the bound (Student), so half of the
    runs exceed it with 10 % of their requests."""
    if not _applies(made, clause):
        return False
    q = 1 - 2 * (1 - (clause.quantile or 0.0))
    logs = [_log_quantile(one, clause.metric, q, up=False) for one in made]
    if not all(map(math.isfinite, logs)):
        return False
    return lower_mean(logs, confidence) > math.log(clause.bound)


def lower_mean(logs: Sequence[float], confidence: float) -> float:
    """Student's lower limit of the mean over runs."""
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return float(np.mean(logs)) - float(t.ppf(confidence, len(logs) - 1)) * error


def _applies(made: Sequence[Measurement], clause: Clause) -> bool:
    return (
        len(made) >= FEWEST_RUNS
        and clause.metric in LATENCIES
        and clause.upper
        and clause.quantile is not None
        and clause.quantile > 0.5
    )


def upper_bound(logs: Sequence[float], beyond: float, confidence: float) -> float:
    """Below which all but the share `beyond` of runs lie, with this confidence."""
    n = len(logs)
    wanted = float(norm.isf(beyond)) * math.sqrt(n)
    factor = float(nct.ppf(confidence, n - 1, wanted)) / math.sqrt(n)
    return float(np.mean(logs)) + factor * float(np.std(logs, ddof=1))


def _log_quantile(made: Measurement, metric: str, q: float, *, up: bool = True) -> float:
    """Of one run, with requests that failed or run on at their worst (up) or as seen; its rank
    rounded against the answer. Infinite with too few requests."""
    found = samples(made.in_window, metric, cut_off_s(made.records, made.window_s))
    values = np.sort(found.at_worst() if up else found.values)
    rank = math.ceil(q * (len(values) + 1)) if up else math.floor(q * len(values))
    if not 1 <= rank <= len(values) or values[rank - 1] <= 0:
        return math.inf
    return math.log(values[rank - 1])
