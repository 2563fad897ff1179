"""Which events of an SLO clause are bad, as PromQL over counters.

A request that was refused, failed or aborted enters no latency histogram, or enters it as a fast
one: it is counted from `request_success` and `admission_rejections` and always bad. Latencies seen
at the end of a request are shares of all requests that ended or were refused; TTFT, seen live, of
first tokens, failures and refusals. Gaps between tokens are shares of gaps: no failure has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.sources import promql
from storage.sources.exposition import Exposition
from tuner.diagnosis.registry import LATENCIES
from tuner.errors import UserError
from tuner.rules.buckets import Boundary, boundaries_of, boundary_of
from tuner.slo import Clause, SloSet

FINISHED = "vllm:request_success_total"
REJECTED = "vllm:admission_rejections_total"
FAILED = 'finished_reason=~"abort|error"'

LIVE = "ttft"
"""Observed at the first token, not at the end of the request."""

GAPS = "itl"

_WHY_NOT = {
    "ttfat": "no server exports when the answer begins after its reasoning",
    "goodput": "a low rate may be little load: it has no error budget",
    "output_tps": "a low rate may be little load: it has no error budget",
    "total_tps": "a low rate may be little load: it has no error budget",
    "rps": "a low rate may be little load: it has no error budget",
    "attainment": "histograms do not tell which requests met several bounds at once; give the "
    "bounds themselves, e.g. ttft_p95<500ms",
    "accuracy": "no server exports it",
    "cost_per_mtok": "no server exports it",
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series count and how they are grouped: matchers by label, labels kept apart."""

    labels: Mapping[str, str]
    by: tuple[str, ...] = ("model_name",)

    def series(self, name: str, extra: str = "") -> str:
        return promql.selector(name, self.labels, extra=extra)

    def rate(self, name: str, window: str, extra: str = "") -> str:
        """Per second, summed over all but the labels kept."""
        return f"{self._sum} (rate({self.series(name, extra)}[{window}]))"

    def gauge(self, name: str) -> str:
        return f"{self._sum} ({self.series(name)})"

    @property
    def _sum(self) -> str:
        return f"sum by ({', '.join(self.by)})" if self.by else "sum"


@dataclass(frozen=True, slots=True)
class Sli:
    """One clause as a share of bad events. budget: the share that may be bad."""

    clause: Clause
    budget: float
    histogram: str = ""
    boundary: Boundary | None = None

    @property
    def key(self) -> str:
        return self.clause.key

    @property
    def events(self) -> str:
        return "gaps between tokens" if self.clause.metric == GAPS else "requests"

    @property
    def bad_is(self) -> str:
        """What counts as bad, for a person."""
        failed = "aborted, failed or refused requests"
        if self.boundary is None:
            return f"bad are {failed}"
        if self.clause.metric == GAPS:
            return f"{self.boundary.told}; failed requests have no gaps: bound error_rate too"
        return f"{self.boundary.told}; {failed} are bad too"

    def bad(self, scope: Scope, window: str) -> str:
        """Bad events per second."""
        parts = [] if self.boundary is None else [self._late(scope, window, self.boundary)]
        if self.clause.metric != GAPS:
            parts += [_failed(scope, window, self._known(scope, window)),
                      _rejected(scope, window, self._known(scope, window))]  # fmt: skip
        return "\n+ ".join(parts)

    def total(self, scope: Scope, window: str) -> str:
        """Events per second."""
        known = self._known(scope, window)
        if self.clause.metric == GAPS:
            return known
        parts = [known, _rejected(scope, window, known)]
        if self.clause.metric == LIVE:
            parts.insert(1, _failed(scope, window, known))
        return "\n+ ".join(parts)

    def _known(self, scope: Scope, window: str) -> str:
        """The events that are always exported."""
        live = self.clause.metric in (LIVE, GAPS)
        return scope.rate(f"{self.histogram}_count" if live else FINISHED, window)

    def _late(self, scope: Scope, window: str, boundary: Boundary) -> str:
        count = scope.rate(f"{self.histogram}_count", window)
        return f"{count}\n- {scope.rate(f'{self.histogram}_bucket', window, boundary.matcher)}"

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        """(name, matcher) of the series without which nothing can be told."""
        found = [] if self.clause.metric == GAPS else [(FINISHED, "")]
        if self.boundary is not None:
            found.insert(0, (f"{self.histogram}_bucket", self.boundary.matcher))
        return tuple(found)


def _failed(scope: Scope, window: str, known: str) -> str:
    return f"({scope.rate(FINISHED, window, FAILED)} or 0 * {known})"


def _rejected(scope: Scope, window: str, known: str) -> str:
    return f"({scope.rate(REJECTED, window)} or 0 * {known})"


def slis(slos: SloSet, exposition: Exposition | None = None) -> tuple[list[Sli], dict[str, str]]:
    """One per clause that has an error budget, and why each other one has none, by its text.

    exposition: of the live server, whose boundaries then count. Raises UserError when no clause is
    left.
    """
    found: list[Sli] = []
    left_out: dict[str, str] = {}
    for clause in slos.clauses:
        made = _sli(clause, exposition)
        if isinstance(made, Sli):
            found.append(made)
        else:
            left_out[clause.text] = made
    if not found:
        reasons = "; ".join(f"{text}: {why}" for text, why in left_out.items())
        raise UserError(f"no SLO that a rule can watch; {reasons or 'give one with --slo'}")
    return found, left_out


def _sli(clause: Clause, exposition: Exposition | None) -> Sli | str:
    if clause.metric in _WHY_NOT:
        return _WHY_NOT[clause.metric]
    if not clause.upper:
        return "an error budget needs an upper bound (<)"
    if clause.metric == "error_rate":
        if not 0 < clause.bound < 1:
            return "a budget must lie between 0 and 100 %"
        return Sli(clause, clause.bound)
    if clause.quantile is None:
        return f"a {clause.stat} has no error budget: give a percentile, {clause.metric}_p95"
    return _latency(clause, clause.quantile, exposition)


def _latency(clause: Clause, quantile: float, exposition: Exposition | None) -> Sli | str:
    names = LATENCIES[clause.metric][0]
    if exposition is not None:
        exported = exposition.names()
        names = tuple(name for name in names if f"{name}_bucket" in exported)
        if not names:
            return f"the server exports no histogram of {clause.metric}"
    boundary = boundary_of(clause.bound, boundaries_of(names[0], exposition))
    if boundary is None:
        return f"{names[0]} has no bucket boundary"
    return Sli(clause, round(1 - quantile, 12), names[0], boundary)
