"""Quantiles: inverted empirical CDF, intervals by order statistics as far as samples carry them.

The estimate is an observed value (Hyndman & Fan 1996, type 1), never an interpolation. The interval
takes order statistics whose ranks cover the quantile with 95 % probability whatever the
distribution (e.g. Conover, Practical Nonparametric Statistics, 3.2), for as many samples as the
dependent ones are worth. Where those are too few for an end, tuner.stats.sections bounds it.
Invariant: the interval is never narrower than that of independent samples, and an end that even
these would leave open stays open. Values are given in order of scheduling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from tuner.stats.dependence import Worth, worth_of_shares
from tuner.stats.estimate import CONFIDENCE, Estimate
from tuner.stats.runs import RunNoise, run_noise, run_parts, widened
from tuner.stats.sections import quantile as quantile
from tuner.stats.sections import sections_reach, tail_reach

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
MAX_SAMPLES_NEEDED = 100_000

FEWEST_BEYOND = 20
"""Dependence is learned at a level that at least this many samples exceed (and stay below). With
10, a p99 of 300 to 1,000 requests of a busy queue was covered too rarely."""

LARGEST_REACH = 50.0
"""Of a logarithm; beyond it an end is not bounded."""

EQUAL = 1e-9
"""Values that differ by less than this share are equal: rounding is no pattern in time."""


def quantile_estimate(
    values: Floats,
    q: float,
    unit: str,
    *,
    sizes: Floats | None = None,
    runs: Sequence[int] | None = None,
    noise: RunNoise | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The q-quantile of values, in order of scheduling, with its two-sided interval.

    sizes: how many values in a row belong to each request (1 each by default). runs: how many
    requests in a row belong to each run. noise: between runs; several runs without one are judged
    by their own spread and the default. An end that too few samples bound is infinite (or 0).
    """
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no samples")
    worth = worth_at_quantile(values, q, sizes=sizes, runs=runs)
    m = worth.counted(confidence)
    bounds = _Bounds(
        np.sort(values), q, (1 - confidence) / 2, m, independent_n(values, q, sizes),
        lambda tail: sections_reach(values, q, tail, sizes, runs),
    )  # fmt: skip
    kind = "sections and tail" if bounds.short else "binomial interval"
    found = Estimate(
        bounds.value, bounds.low(), bounds.high(), n, unit, f"inverted empirical CDF, {kind}",
        effective_n=worth.effective_n, counted_n=m,
    )  # fmt: skip
    found = replace(found, method=found.method + found.worth_text)
    parts = run_parts(values, sizes, runs)
    if noise is None and len(parts) < 2:
        return found
    each = [quantile_estimate(part, q, unit, sizes=own) for part, own in parts]
    shared = run_noise([each]) if noise is None else noise
    return widened(found, shared.reach(each, confidence))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The two ends, each with error `tail`, of n values that are worth m independent ones.

    independent: what they would be worth if requests did not depend on each other. sections: the
    reach of tuner.stats.sections for an error.
    """

    ordered: Floats
    q: float
    tail: float
    m: int
    independent: int
    sections: Callable[[float], float]

    @property
    def value(self) -> float:
        return quantile(self.ordered, self.q)

    def ranked(self, *, upper: bool, m: int | None = None) -> float | None:
        """The order statistic that bounds the quantile; None where m samples have none."""
        n, m = len(self.ordered), self.m if m is None else m
        rank = int(binom.ppf(1 - self.tail, m, self.q)) + 1
        if not upper:
            rank = int(binom.ppf(self.tail, m, self.q))
        if not 1 <= rank <= m:
            return None
        return float(self.ordered[min(n - 1, max(0, math.ceil(rank * n / m) - 1))])

    def plain(self, *, upper: bool) -> float | None:
        """The same of independent samples, or the last of them where they decide one-sided."""
        found = self.ranked(upper=upper, m=self.independent)
        if found is None and self._bounded(self.q if upper else 1 - self.q):
            return float(self.ordered[-1 if upper else 0])
        return found

    @property
    def short(self) -> bool:
        """Whether dependence leaves an end open that independent samples bound."""
        return any(
            self.ranked(upper=upper) is None and self.plain(upper=upper) is not None
            for upper in (True, False)
        )

    def high(self) -> float:
        plain, ranked = self.plain(upper=True), self.ranked(upper=True)
        if plain is None:
            return math.inf
        ends = [plain] if ranked is None else [plain, ranked]
        if self.short:
            tail = 0.0 if ranked is not None else self._tail(self.ordered, self.q)
            reach = math.hypot(self.sections(self.tail), tail)
            ends.append(self.value * math.exp(reach) if reach < LARGEST_REACH else math.inf)
        return max(ends)

    def low(self) -> float:
        plain, ranked = self.plain(upper=False), self.ranked(upper=False)
        if plain is None:
            return 0.0
        ends = [plain] if ranked is None else [plain, ranked]
        if self.short and math.isinf(self.value):
            ends.append(float(self.ordered[0]))
        elif self.short:
            with np.errstate(divide="ignore"):
                mirrored = 1 / self.ordered[::-1]
            tail = 0.0 if ranked is not None else self._tail(mirrored, 1 - self.q)
            ends.append(self.value * math.exp(-math.hypot(self.sections(self.tail), tail)))
        return min(ends)

    def _tail(self, ordered: Floats, q: float) -> float:
        return tail_reach(ordered, q, self.m, self.tail)

    def _bounded(self, share: float) -> bool:
        """Whether independent samples, of which this share lies on one side, decide one-sided: at
        95 % a p95 needs 59, a p99 299. The two-sided interval of 95 % goes with that verdict."""
        return bounded(share, self.independent, _error(self.tail))


def _error(tail: float) -> float:
    """Of the one-sided verdict that an end with this error goes with."""
    return 1 - CONFIDENCE if tail >= (1 - CONFIDENCE) / 2 - 1e-12 else tail


def bounded(share: float, n: int, error: float = 1 - CONFIDENCE) -> bool:
    """Whether of n independent samples one lies beyond a quantile that has this share on the near
    side, but for `error`: a p95 takes 59, a p99 299."""
    return bool(share**n <= error + 1e-12)


def fewest_samples(share: float, confidence: float = CONFIDENCE) -> int:
    """How many independent samples a one-sided verdict at this confidence takes at least."""
    fewest = math.ceil(math.log(_error(1 - confidence)) / math.log(share) - 1e-9)
    return fewest if bounded(share, fewest, _error(1 - confidence)) else fewest + 1


def worth_at_quantile(
    values: Floats, q: float, *, sizes: Floats | None = None, runs: Sequence[int] | None = None
) -> Worth:
    """What values are worth for a share near q, by the exceedances of their own q-quantile."""
    return worth_of_shares(_per_request(_flagged(values, q), sizes), sizes, runs)


def _flagged(values: Floats, q: float) -> Bools:
    """Which values exceed the q-quantile, or the level nearest to it that enough of them do."""
    n = len(values)
    edge = min(0.5, FEWEST_BEYOND / n)
    level = quantile(np.sort(values), min(1 - edge, max(edge, q)))
    return np.isinf(values) if math.isinf(level) else values > level * (1 + EQUAL)


def independent_n(values: Floats, q: float, sizes: Floats | None = None) -> int:
    """How many samples values are worth for their q-quantile if requests are independent: all of
    them, or fewer for gaps that share the pace of their request (design effect, Kish 1965)."""
    if sizes is None:
        return len(values)
    at_quantile = _flagged(values, q)
    return max(1, math.floor(cluster_n(_per_request(at_quantile, sizes), sizes)))


def cluster_n(hits: Floats, sizes: Floats) -> float:
    """What sizes[i] samples of each request are worth where hits[i] of them are hits."""
    n, groups = float(sizes.sum()), int((sizes > 0).sum())
    share = float(hits.sum()) / n if n else 0.0
    if groups < 2 or not 0 < share < 1:
        return n if groups > 1 else float(groups)
    squares = float(((hits - share * sizes) ** 2).sum()) * groups / (groups - 1)
    return n / max(1.0, squares / (n * share * (1 - share)))


def _per_request(flags: Bools, sizes: Floats | None) -> Floats:
    """How many values of each request are flagged."""
    if sizes is None:
        return flags.astype(float)
    ends = np.cumsum(sizes).astype(int)
    total = np.concatenate([[0.0], np.cumsum(flags)])
    counted: Floats = np.diff(total[np.concatenate([[0], ends])])
    return counted


def exceedance_test(
    n: float, exceeding: float, q: float, confidence: float = CONFIDENCE
) -> Literal["below", "above", "open"]:
    """Is the q-quantile below the bound that `exceeding` of n samples exceed?

    One-sided binomial tests: "below" with p95 needs at least 59 samples, p99 at least 299.
    """
    if n <= 0:
        return "open"
    alpha = 1 - confidence
    if binom.cdf(exceeding, n, 1 - q) <= alpha:
        return "below"
    if exceeding > 0 and binom.sf(exceeding - 1, n, 1 - q) <= alpha:
        return "above"
    return "open"


def samples_needed(n: int, exceeding: int, q: float) -> int | None:
    """About how many samples would decide at the present share of exceedances; None: too many."""
    share = exceeding / n if n else 0.0
    total = max(n, 8)
    while total <= MAX_SAMPLES_NEEDED:
        total = math.ceil(total * 1.1) + 1
        if exceedance_test(total, round(share * total), q) != "open":
            return total - n
    return None
