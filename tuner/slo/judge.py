"""Pass, fail or inconclusive: a run against its SLOs, and how far each clause is from its bound.

A clause is decided by the interval of its figure, a percentile by the end of the one-sided one at
the same confidence, which is never inside that of independent samples. Failed requests are over
every bound, censored ones count against the clause where they could; where they alone are too many,
that decides. What could not be measured is not met, and the reason names it; where requests still
ran at the cut-off, what they have not shown yet is open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tuner import figures
from tuner.figures.samples import samples
from tuner.slo.grammar import Clause, SloSet
from tuner.slo.needs import lost_for_certain, missing_counts, what_is_missing
from tuner.stats.estimate import CONFIDENCE, Estimate
from tuner.stats.quantiles import exceedance_test, independent_n
from tuner.stats.runs import RunNoise

if TYPE_CHECKING:
    from tuner.measure import Measurement

VerdictState = Literal["pass", "fail", "inconclusive"]
VerdictWord = Literal["met", "missed", "undecided"]
VERDICTS: Mapping[str, VerdictWord] = {
    "pass": "met", "fail": "missed", "inconclusive": "undecided",
}  # fmt: skip
"""What a user reads for the state of a clause or a verdict, wherever one is shown."""

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


@dataclass(frozen=True, slots=True)
class _Case:
    """What a clause is judged on."""

    slos: SloSet
    made: Measurement
    price_per_hour: float | None
    noise: Mapping[str, RunNoise]
    confidence: float

    def estimate(self, clause: Clause, confidence: float = CONFIDENCE) -> Estimate:
        made = self.made
        price = made.price_per_hour if self.price_per_hour is None else self.price_per_hour
        return figures.figure(
            made.records, made.window_s, clause.key, self.slos, price_per_hour=price,
            run_ends_s=made.run_ends_s, noise=self.noise.get(clause.key), confidence=confidence,
        )  # fmt: skip


def judge(
    slos: SloSet,
    made: Measurement,
    *,
    price_per_hour: float | None = None,
    noise: Mapping[str, RunNoise] | None = None,
    confidence: float = CONFIDENCE,
) -> Verdict:
    """The verdict on a measurement; without clauses a run with one good answer passes.

    price_per_hour overrides the measurement's own. noise: between runs, by clause key, as a study
    knows it (tuner.stats.run_noises). confidence: of the verdict; the estimates shown have
    intervals of 95 %.
    """
    case = _Case(slos, made, price_per_hour, noise or {}, confidence)
    clauses = tuple(_judge_clause(clause, case) for clause in slos.clauses)
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


def _judge_clause(clause: Clause, case: _Case) -> ClauseVerdict:
    if clause.metric == "queue":
        return _judge_queue(clause, case.made)
    if clause.metric == "accuracy":
        missing = Estimate.missing("share", "accuracy was not measured: --quality")
        return by_interval(clause, case.made.accuracy or missing)
    estimate = case.estimate(clause)
    unfinished = case.made.counts.get("censored") and clause.metric != "cost_per_mtok"
    if unfinished and not estimate.measured:
        return no_data(clause, estimate)
    if clause.quantile is not None and estimate.measured:
        return _judge_percentile(clause, clause.quantile, case, estimate)
    if case.confidence == CONFIDENCE:
        return by_interval(clause, estimate)
    return replace(by_interval(clause, case.estimate(clause, case.confidence)), estimate=estimate)


def no_data(clause: Clause, estimate: Estimate) -> ClauseVerdict:
    """Of requests that had not shown the figure when they were cut off."""
    why = f"no data: {estimate.reason}"
    return ClauseVerdict(clause, "inconclusive", estimate, MARGIN_LIMIT, why)


def _judge_percentile(clause: Clause, q: float, case: _Case, estimate: Estimate) -> ClauseVerdict:
    """One-sided: by the ends of the two-sided interval that leaves as much on each side."""
    sided = case.estimate(clause, 2 * case.confidence - 1)
    verdict = replace(by_interval(clause, sided), estimate=estimate)
    if verdict.state != "inconclusive":
        return verdict
    made = case.made
    cut_off_s = figures.cut_off_s(made.records, made.window_s)
    found = samples(made.in_window, clause.metric, cut_off_s, made.run_ends_s)
    n = independent_n(found.values, q, found.sizes)
    if lost_for_certain(clause, q, found, n, case.confidence):
        return replace(verdict, state="fail", reason="")
    why = what_is_missing(clause, q, sided, found, n, case.confidence)
    return replace(verdict, reason=why)


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
    return _by_counts(clause, clause.quantile, estimate, missing, n)


def _by_counts(
    clause: Clause, q: float, estimate: Estimate, missing: tuple[int, int], n: int
) -> ClauseVerdict:
    """missing: how many of n samples miss the bound, for certain and at most."""
    certain, possible = missing
    margin = _margin(clause, estimate.value)
    most, least = (possible, certain) if clause.upper else (n - certain, n - possible)
    below = exceedance_test(n, most, q) == "below"
    above = exceedance_test(n, least, q) == "above"
    if below or above:
        state: VerdictState = "pass" if below == clause.upper else "fail"
        return ClauseVerdict(clause, state, estimate, margin)
    why = missing_counts(clause, q, possible, n)
    return ClauseVerdict(clause, "inconclusive", estimate, margin, why)


def _margin(clause: Clause, value: float) -> float:
    if math.isnan(value):
        return MARGIN_LIMIT
    if clause.bound == 0 or value <= 0:
        return -MARGIN_LIMIT if clause.holds(value) else MARGIN_LIMIT
    ratio = math.inf if math.isinf(value) else math.log(value / clause.bound)
    signed = ratio if clause.upper else -ratio
    return max(-MARGIN_LIMIT, min(MARGIN_LIMIT, signed))
