"""Why a percentile is not decided, and how much more would decide it, as far as that is known.

Invariant: a number of further requests is named only where it follows from how many samples a
percentile takes at all, or from the interval that has to shrink by the square root of what is
measured. Where the estimate itself misses the bound or has no end, that is said instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.figures.samples import Samples
from tuner.stats.estimate import Estimate
from tuner.stats.quantiles import (
    MAX_SAMPLES_NEEDED,
    exceedance_test,
    fewest_samples,
    samples_needed,
)
from tuner.units import count_text

if TYPE_CHECKING:
    from tuner.slo.grammar import Clause

MOST_TIMES = 10
"""Where nothing but counts is known, the share of misses is too uncertain for more than so many
times as many samples."""

TOO_CLOSE = "too close to it to decide"


def holds(clause: Clause, values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Which values are on the clause's side of its bound."""
    if clause.upper:
        return values < clause.bound if clause.op == "<" else values <= clause.bound
    return values > clause.bound if clause.op == ">" else values >= clause.bound


def what_is_missing(
    clause: Clause, q: float, sided: Estimate, found: Samples, n: int, confidence: float
) -> str:
    """For a q-quantile whose one-sided interval, sided, reaches over the bound.

    n: how many independent samples there would be if requests were independent.
    """
    return f"{_seen(clause, found)}: {_missing(clause, q, sided, found, n, confidence)}"


def _seen(clause: Clause, found: Samples) -> str:
    """What is certain, and what requests that still ran may add to it."""
    within = holds(clause, found.values)
    beyond = ~within if clause.upper else ~within & ~found.is_open
    unknown = int((found.is_open & (within if clause.upper else ~within)).sum())
    seen = f"{int(beyond.sum())} of {count_text(len(found.values), 'sample')} miss the bound"
    return f"{seen}, {unknown} unfinished may" if unknown else seen


def _missing(
    clause: Clause, q: float, sided: Estimate, found: Samples, n: int, confidence: float
) -> str:
    if not clause.holds(sided.value):
        what = "is that of a failed request" if math.isinf(sided.value) else "itself misses it"
        return f"the {clause.stat} {what}, but not yet for certain"
    fewest = fewest_samples(q if clause.upper else 1 - q, confidence)
    if n < fewest:
        return f"needs at least {_more(fewest / n, found)}"
    end = sided.high if clause.upper else sided.low
    if not (0 < end < math.inf and 0 < sided.value < math.inf) or clause.bound <= 0:
        return f"{sided.n} samples leave that end of the interval open"
    if sided.value == clause.bound:
        return TOO_CLOSE
    times = (math.log(end / sided.value) / math.log(clause.bound / sided.value)) ** 2
    if not 1 < times < 1 + MAX_SAMPLES_NEEDED / len(found.names):
        return TOO_CLOSE
    return f"needs about {_more(times, found, digits=2)}"


def _more(times: float, found: Samples, digits: int = 9) -> str:
    """What makes it so many times as much, to so many digits."""
    if found.runs is not None and len(found.runs) > 1:
        return count_text(math.ceil((times - 1) * len(found.runs)), "more run")
    more = math.ceil((times - 1) * len(found.names) - 1e-9)
    return count_text(round(more, min(0, digits - len(str(more)))), "more request")


def missing_counts(clause: Clause, q: float, possible: int, n: int) -> str:
    """The same where only counts are known: at most possible of n independent samples miss it."""
    seen = f"{possible} of {count_text(n, 'sample')} miss the bound"
    more = samples_needed(n, possible if clause.upper else n - possible, q)
    if more is None or more > MOST_TIMES * n:
        return f"{seen}: {TOO_CLOSE}"
    return f"{seen}: needs about {count_text(more, 'more request')}"


def lost_for_certain(clause: Clause, q: float, found: Samples, n: int, confidence: float) -> bool:
    """Whether failed and unfinished requests alone are more than the percentile allows."""
    gone = found.is_open | np.isinf(found.values)
    lost = int((~holds(clause, found.values) & gone).sum())
    counted = math.floor(lost * n / len(found.values))
    return clause.upper and exceedance_test(n, counted, q, confidence) == "above"
