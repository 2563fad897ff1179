"""Pass, fail or inconclusive: a run against its SLOs, and how far each clause is from its bound.

A percentile clause is decided by the exact one-sided binomial test on the number of requests over
the bound; failed requests are over every bound, censored ones count against the clause where they
could. What could not be measured is not met, and the reason names it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tuner import figures
from tuner.slo.grammar import Clause, SloSet
from tuner.stats.estimate import Estimate
from tuner.stats.quantiles import cluster_effective_n, exceedance_test, samples_needed

if TYPE_CHECKING:
    from tuner.measure import Measurement

VerdictState = Literal["pass", "fail", "inconclusive"]

MARGIN_LIMIT = 2.0
"""Margins are clipped to ±e²: beyond that "how much worse" says nothing to a search."""


@dataclass(frozen=True, slots=True)
class ClauseVerdict:
    """margin_log = log(value / bound), signed so that ≤ 0 meets the bound; clipped."""

    clause: Clause
    state: VerdictState
    estimate: Estimate
    margin_log: float
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "clause": self.clause.text,
            "key": self.clause.key,
            "bound": self.clause.bound,
            "state": self.state,
            "estimate": self.estimate.as_dict(),
            "margin_log": self.margin_log,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """fail if one clause fails, else inconclusive if one is or the run is invalid, else pass."""

    state: VerdictState
    clauses: tuple[ClauseVerdict, ...]
    reason: str = ""

    @property
    def margins(self) -> list[float]:
        """One constraint value per clause, ≤ 0 when met."""
        return [clause.margin_log for clause in self.clauses]

    def as_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "reason": self.reason,
            "clauses": [clause.as_dict() for clause in self.clauses],
        }


def judge(
    slos: SloSet,
    made: Measurement,
    *,
    price_per_hour: float | None = None,
    accuracy: Estimate | None = None,
) -> Verdict:
    """The verdict on a measurement; without clauses a run with one good answer passes.

    price_per_hour overrides the measurement's own; accuracy is the share of a quality check.
    """
    clauses = tuple(
        _judge_clause(clause, slos, made, price_per_hour, accuracy) for clause in slos.clauses
    )
    states = {clause.state for clause in clauses}
    if made.counts.get("sent", 0) and not made.counts["ok"] and not made.counts["censored"]:
        return Verdict("fail", clauses, "every request failed")
    if "fail" in states:
        return Verdict("fail", clauses)
    if made.invalid_reason:
        return Verdict("inconclusive", clauses, made.invalid_reason)
    if not made.counts["ok"]:
        return Verdict("inconclusive", clauses, "no request ended before the cut-off")
    return Verdict("inconclusive" if "inconclusive" in states else "pass", clauses)


def _judge_clause(
    clause: Clause,
    slos: SloSet,
    made: Measurement,
    price_per_hour: float | None,
    accuracy: Estimate | None,
) -> ClauseVerdict:
    if clause.metric == "queue":
        return _judge_queue(clause, made)
    if clause.metric == "accuracy":
        estimate = accuracy or Estimate.missing("share", "accuracy was not measured: --quality")
        return by_interval(clause, estimate)
    price = made.price_per_hour if price_per_hour is None else price_per_hour
    estimate = figures.figure(made.records, made.window_s, clause.key, slos, price_per_hour=price)
    if clause.quantile is not None and estimate.measured:
        return _by_exceedance(clause, clause.quantile, made, estimate)
    return by_interval(clause, estimate)


def _by_exceedance(
    clause: Clause, q: float, made: Measurement, estimate: Estimate
) -> ClauseVerdict:
    """The quantile test on the samples that miss the bound, for certain and at most."""
    inside = made.in_window
    known, at_least = figures.latencies(
        inside, clause.metric, figures.cut_off_s(made.records, made.window_s)
    )
    n, effective_n = len(known) + len(at_least), float(len(known) + len(at_least))
    if clause.metric == "itl":
        effective_n = cluster_effective_n(figures.gap_groups(inside), clause.bound)
    missing = int((~_holds(clause, known)).sum())
    unknown = int(_holds(clause, at_least).sum())
    if clause.upper:
        certain, possible = missing + len(at_least) - unknown, missing + len(at_least)
    else:  # a lower bound that what was seen already meets stays met
        certain, possible = missing, missing + len(at_least) - unknown
    return _tested(clause, q, estimate, (certain, possible), n, effective_n)


def _tested(
    clause: Clause,
    q: float,
    estimate: Estimate,
    missing: tuple[int, int],
    n: int,
    effective_n: float,
) -> ClauseVerdict:
    """missing: how many of n samples miss the bound (for certain, at most). Dependent samples count
    as effective_n of them, rounded against the answer."""
    certain, possible = missing
    margin = _margin(clause, estimate.value)
    m = max(1, min(n, math.floor(effective_n)))
    few, many = math.floor(certain * m / n), math.ceil(possible * m / n)
    if clause.upper:
        passing = exceedance_test(m, many, q) == "below"
        failing = exceedance_test(m, few, q) == "above"
    else:
        passing = exceedance_test(m, m - many, q) == "above"
        failing = exceedance_test(m, m - few, q) == "below"
    if passing or failing:
        return ClauseVerdict(clause, "pass" if passing else "fail", estimate, margin)
    return ClauseVerdict(clause, "inconclusive", estimate, margin, _needs(clause, n, m, many, q))


def _holds(clause: Clause, values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    if clause.upper:
        return values < clause.bound if clause.op == "<" else values <= clause.bound
    return values > clause.bound if clause.op == ">" else values >= clause.bound


def _needs(clause: Clause, n: int, m: int, missing: int, q: float) -> str:
    """missing of m effective samples (n observed) miss the bound."""
    seen = f"{missing * n // m} of {n} samples miss the bound"
    more = samples_needed(m, missing if clause.upper else m - missing, q)
    if more is None:
        return f"{seen}: too close to it to decide"
    what = "more requests" if clause.metric != "itl" else "more independent gaps"
    return f"{seen}: needs about {more} {what}"


def by_interval(clause: Clause, estimate: Estimate) -> ClauseVerdict:
    """Whole interval on one side of the bound, or open. Observed extremes are what they are."""
    if not estimate.measured:
        return ClauseVerdict(
            clause, "fail", estimate, MARGIN_LIMIT, f"not met: not measured ({estimate.reason})"
        )
    margin = _margin(clause, estimate.value)
    low_holds, high_holds = clause.holds(estimate.low), clause.holds(estimate.high)
    if low_holds and high_holds:
        return ClauseVerdict(clause, "pass", estimate, margin)
    if not low_holds and not high_holds and not clause.holds(estimate.value):
        return ClauseVerdict(clause, "fail", estimate, margin)
    if clause.metric == "error_rate" and clause.bound == 0:
        # No interval of a share lies wholly at 0: "no errors" can only mean "none was seen".
        state: VerdictState = "pass" if clause.holds(estimate.value) else "fail"
        return ClauseVerdict(clause, state, estimate, margin)
    return ClauseVerdict(clause, "inconclusive", estimate, margin, _open_interval(estimate))


def _open_interval(estimate: Estimate) -> str:
    """Why an interval does not decide, and for shares about how much more would."""
    reason = "the 95 % interval reaches over the bound"
    return f"{reason}: needs more requests" if estimate.unit == "share" else f"{reason}: run longer"


def _judge_queue(clause: Clause, made: Measurement) -> ClauseVerdict:
    """From the server's own histogram, which knows a wait only up to its bucket."""
    server = made.server
    if server is None or server.queue_mean_s is None:
        return by_interval(clause, Estimate.missing("s", "the server exports no queue time"))
    if clause.quantile is None:
        if clause.stat != "mean":
            return by_interval(clause, Estimate.missing("s", f"no {clause.stat} in a histogram"))
        mean, n = server.queue_mean_s, server.queue_count
        return by_interval(clause, Estimate(mean, mean, mean, n, "s", "server's sum and count"))
    low, high, n = server.queue_quantile_s(clause.quantile)
    estimate = Estimate(high, low, high, n, "s", "server's histogram, whole bucket")
    if n == 0:
        return by_interval(clause, Estimate.missing("s", "no request finished queueing"))
    within, maybe = server.queue_counts(clause.bound)
    missing = (n - maybe, n - within) if clause.upper else (within, maybe)
    return _tested(clause, clause.quantile, estimate, missing, n, n)


def _margin(clause: Clause, value: float) -> float:
    if math.isnan(value):
        return MARGIN_LIMIT
    if clause.bound == 0 or value <= 0:
        return -MARGIN_LIMIT if clause.holds(value) else MARGIN_LIMIT
    ratio = math.inf if math.isinf(value) else math.log(value / clause.bound)
    signed = ratio if clause.upper else -ratio
    return max(-MARGIN_LIMIT, min(MARGIN_LIMIT, signed))
