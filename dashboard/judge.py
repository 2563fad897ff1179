"""Which SLO clauses live histograms can judge, and how a latency stands against one.

Only percentile and mean clauses on latencies the engine exports; the quantile comes from buckets,
so it is no verdict on records; the words are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.live import LATENCIES, Latency, attainment
from tuner.budget.events import GAPS
from tuner.diagnosis.thresholds import DEFAULT
from tuner.slo import VERDICTS, Clause, parse_slos
from tuner.stats.quantiles import exceedance_test
from tuner.stats.rates import clopper_pearson

_MET, _MISSED = (VERDICTS["pass"], "good"), (VERDICTS["fail"], "bad")
_UNDECIDED = (VERDICTS["inconclusive"], "warn")


@dataclass(frozen=True, slots=True)
class LatencySlo:
    """quantile in (0, 1), None for the mean; bound in seconds."""

    name: str
    quantile: float | None
    bound_s: float
    text: str

    def verdict(self, latency: Latency) -> tuple[str, str]:
        """(word, tone). Too few requests to decide is said, never passed."""
        if not latency.mean.ok:
            return "no traffic" if latency.mean.outcome == "no_traffic" else "no data", "neutral"
        if self.quantile is None:
            if latency.mean.samples < DEFAULT("high_requests"):
                return _UNDECIDED
            met = (latency.mean.value or 0.0) <= self.bound_s
            return _MET if met else _MISSED
        return self._by_exceedance(latency, self.quantile)

    def _by_exceedance(self, latency: Latency, quantile: float) -> tuple[str, str]:
        """The tuner's own test on the number of requests over the bound, as the buckets allow."""
        share = attainment(latency.buckets, self.bound_s)
        if share is None:
            return "no data", "neutral"
        total = latency.mean.samples
        most_over, least_over = (round(total * (1 - edge)) for edge in share)
        if exceedance_test(total, most_over, quantile) == "below":
            return _MET
        if exceedance_test(total, least_over, quantile) == "above":
            return _MISSED
        return _UNDECIDED

    def attained_interval(self, latency: Latency) -> tuple[float, float] | None:
        """Of the share within the bound, exact at 95 %, as widely as the buckets allow. None
        without traffic, and for gaps between tokens: those of a request hang together."""
        share = attainment(latency.buckets, self.bound_s)
        total = latency.mean.samples
        if share is None or not total or self.name == GAPS:
            return None
        least, most = (clopper_pearson(total * edge, total) for edge in share)
        return least[0], most[1]


def latency_slos(texts: Sequence[str]) -> list[LatencySlo]:
    return [slo for clause in _clauses(texts) if (slo := _live(clause)) is not None]


def unjudged(texts: Sequence[str]) -> list[str]:
    """Clauses that live metrics cannot judge, as the user wrote them."""
    return [str(clause) for clause in _clauses(texts) if _live(clause) is None]


def _clauses(texts: Sequence[str]) -> Sequence[Clause]:
    return parse_slos(texts).clauses if texts else ()


def _live(clause: Clause) -> LatencySlo | None:
    if clause.metric not in LATENCIES or not clause.op.startswith("<"):
        return None
    if clause.stat == "mean":
        return LatencySlo(clause.metric, None, clause.bound, str(clause))
    if clause.quantile is None:
        return None
    return LatencySlo(clause.metric, clause.quantile, clause.bound, str(clause))
