"""Which events of an SLO clause are bad, as sums of counters.

Latencies seen at the end of a request are shares of all requests that ended or were refused; TTFT,
seen live, of first tokens and of what ended badly. Gaps between tokens are shares of gaps: no
failure has one. The one place that decides it: rules (tuner/rules) and live reading (live.py) only
write or read these sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.budget.buckets import Boundary, Exports, boundaries_of, boundary_of
from tuner.budget.counters import Counter, Counters, counters_of
from tuner.diagnosis.registry import LATENCIES, Dialect, dialect_of
from tuner.errors import UserError
from tuner.slo import Clause, SloSet

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
class Sli:
    """One clause as a share of bad events. budget: the share that may be bad."""

    clause: Clause
    budget: float
    counters: Counters
    histogram: str = ""
    boundary: Boundary | None = None

    @property
    def key(self) -> str:
        return self.clause.key

    @property
    def gaps(self) -> bool:
        return self.clause.metric == GAPS

    @property
    def live(self) -> bool:
        """Whether its latencies are observed while requests still run."""
        return self.clause.metric in (LIVE, GAPS)

    @property
    def events(self) -> str:
        return "gaps between tokens" if self.gaps else "requests"

    @property
    def bad_is(self) -> str:
        """What counts as bad, for a person."""
        failed, unseen = self.counters.bad_are, self.counters.unseen
        if self.boundary is None:
            return f"bad are {failed}"
        if self.gaps:
            also = unseen or "bound error_rate too"
            return f"{self.boundary.told}; failed requests have no gaps: {also}"
        return f"{self.boundary.told}; {failed} are bad too" + (f"; {unseen}" if unseen else "")

    @property
    def known(self) -> Counter:
        """The events that are always counted."""
        return Counter(f"{self.histogram}_count") if self.live else self.counters.finished

    @property
    def within_bound(self) -> Counter | None:
        """Those of the histogram up to the boundary; None where no latency is bounded."""
        if self.boundary is None:
            return None
        return Counter(f"{self.histogram}_bucket", "le", self.boundary.spellings)

    @property
    def bad(self) -> tuple[tuple[int, Counter], ...]:
        """(sign, counter) whose sum is the bad events."""
        late = (
            []
            if self.within_bound is None
            else [(1, Counter(f"{self.histogram}_count")), (-1, self.within_bound)]
        )
        failed = () if self.gaps else self.counters.ended_badly
        return (*late, *((1, counter) for counter in failed))

    @property
    def total(self) -> tuple[tuple[int, Counter], ...]:
        """(sign, counter) whose sum is all events."""
        more: tuple[Counter, ...] = ()
        if not self.gaps:
            more = self.counters.ended_badly if self.live else self.counters.beside
        return tuple((1, counter) for counter in (self.known, *more))

    @property
    def needs(self) -> tuple[Counter, ...]:
        """Those without which nothing can be told."""
        found = [] if self.gaps else [self.counters.finished]
        return tuple(found if self.within_bound is None else [self.within_bound, *found])


def slis(
    slos: SloSet, exported: Exports | None = None, dialect: Dialect | None = None
) -> tuple[list[Sli], dict[str, str]]:
    """One per clause that has an error budget, and why each other one has none, by its text.

    exported: by a live server, whose names and boundaries then count, and which tells the dialect
    where none is given. Raises UserError when no clause is left.
    """
    spoken = dialect or (dialect_of(exported.names) if exported else None) or "vllm"
    counters = counters_of(spoken, exported)
    found: list[Sli] = []
    left_out: dict[str, str] = {}
    for clause in slos.clauses:
        made = _sli(clause, counters, exported)
        if isinstance(made, Sli):
            found.append(made)
        else:
            left_out[clause.text] = made
    if not found:
        reasons = "; ".join(f"{text}: {why}" for text, why in left_out.items())
        raise UserError(f"no SLO that a rule can watch; {reasons or 'give one with --slo'}")
    return found, left_out


def _sli(clause: Clause, counters: Counters, exported: Exports | None) -> Sli | str:
    if clause.metric in _WHY_NOT:
        return _WHY_NOT[clause.metric]
    if not clause.upper:
        return "an error budget needs an upper bound (<)"
    if clause.metric == "error_rate":
        if not 0 < clause.bound < 1:
            return "a budget must lie between 0 and 100 %"
        return counters.unseen or Sli(clause, clause.bound, counters)
    if clause.quantile is None:
        return f"a {clause.stat} has no error budget: give a percentile, {clause.metric}_p95"
    made = Sli(clause, round(1 - clause.quantile, 12), counters)
    return _latency(made, exported)


def _latency(made: Sli, exported: Exports | None) -> Sli | str:
    clause, engine = made.clause, made.counters.engine
    vllm, sglang = LATENCIES[clause.metric]
    names = sglang if made.counters.dialect == "sglang" else vllm
    if not names:
        return f"{engine} exports no histogram of {clause.metric}"
    name = names[0] if exported is None else exported.resolve(names)
    if exported is not None and f"{name}_bucket" not in exported.names:
        served = made.counters.finished.name in exported.names
        first = "" if served else " before its first request"
        return f"the server exports no histogram of {clause.metric}{first}"
    boundary = boundary_of(clause.bound, boundaries_of(name, exported))
    if boundary is None:
        how = "" if exported else "; with --url it is read off the server"
        return f"the bucket boundaries of {name} are not known{how}"
    return replace(made, histogram=name, boundary=boundary)
