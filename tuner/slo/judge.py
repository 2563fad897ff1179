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
    """The verdict on a measurement; without clauses an error-free run passes."""
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
        return _by_interval(clause, estimate)
    estimate = figures.figure(
        made.records, made.window_s, clause.key, slos, price_per_hour=price_per_hour
    )
    if clause.quantile is not None and estimate.measured:
        return _by_exceedance(clause, clause.quantile, made, estimate)
    return _by_interval(clause, estimate)


def _by_exceedance(
    clause: Clause, q: float, made: Measurement, estimate: Estimate
) -> ClauseVerdict:
    """The quantile test; counts are scaled where samples depend on each other."""
    inside = made.in_window
    known, at_least = figures.latencies(
        inside, clause.metric, figures.cut_off_s(made.records, made.window_s)
    )
    over = (
        int((~_holds(clause, known)).sum()) if clause.upper else int((known < clause.bound).sum())
    )
    censored_over = int((at_least > clause.bound).sum())
    undecided = len(at_least) - censored_over
    n = len(known) + len(at_least)
    scale = 1.0
    if clause.metric == "itl":
        groups = [gaps for gaps in (r.gaps_s() for r in inside) if len(gaps)]
        scale = min(1.0, cluster_effective_n(groups, clause.bound) / max(1, n))
    if clause.upper:
        worst = over + censored_over + undecided
        passing = exceedance_test(n * scale, math.ceil(worst * scale), q) == "below"
        failing = exceedance_test(n * scale, (over + censored_over) * scale // 1, q) == "above"
    else:
        above = n - over
        passing = exceedance_test(n * scale, above * scale // 1, q) == "above"
        failing = exceedance_test(n * scale, math.ceil(above * scale), q) == "below"
    margin = _margin(clause, estimate.value)
    if passing or failing:
        return ClauseVerdict(clause, "pass" if passing else "fail", estimate, margin)
    return ClauseVerdict(clause, "inconclusive", estimate, margin, _needs(n, over, q))


def _holds(clause: Clause, values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    return values < clause.bound if clause.op == "<" else values <= clause.bound


def _needs(n: int, over: int, q: float) -> str:
    more = samples_needed(n, over, q)
    if more is None:
        return f"{over} of {n} samples are over the bound: too close to it to decide"
    return f"{over} of {n} samples are over the bound: needs about {more} more requests"


def _by_interval(clause: Clause, estimate: Estimate) -> ClauseVerdict:
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
    return ClauseVerdict(
        clause, "inconclusive", estimate, margin, "the interval reaches over the bound"
    )


def _judge_queue(clause: Clause, made: Measurement) -> ClauseVerdict:
    """From the server's own histogram: bucket bounds, so only ever an upper bound is known."""
    server = made.server
    if server is None or server.queue_mean_s is None:
        return _by_interval(clause, Estimate.missing("s", "the server exports no queue time"))
    if clause.quantile is None:
        value, n = server.queue_mean_s, int(server.finished or 0)
        if clause.stat != "mean":
            return _by_interval(clause, Estimate.missing("s", f"no {clause.stat} from a histogram"))
    else:
        value, n = server.queue_quantile_s(clause.quantile)
    return _by_interval(
        clause, Estimate(value, value, value, n, "s", "server's histogram, bucket bound")
    )


def _margin(clause: Clause, value: float) -> float:
    if math.isnan(value):
        return MARGIN_LIMIT
    if clause.bound == 0 or value <= 0:
        return -MARGIN_LIMIT if clause.holds(value) else MARGIN_LIMIT
    ratio = math.inf if math.isinf(value) else math.log(value / clause.bound)
    signed = ratio if clause.upper else -ratio
    return max(-MARGIN_LIMIT, min(MARGIN_LIMIT, signed))
