"""How fast error budgets burn now, read from a metric source: what the alerts of tuner/rules say.

Invariants: which events are bad, and when a pair of windows fires, is decided where the rules have
it from (events.py, burn.py). Kept apart: a share (0 is one), no traffic, no data, a window that
nobody watched for long enough, and a source that does not answer. The events of a histogram and
those within its bound come from one question, so that no scrape lies between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from storage.sources.answers import bucket_bound
from storage.sources.base import MetricSource, Outcome, Reading
from tuner.budget.buckets import of_source
from tuner.budget.burn import BURN_WINDOWS, WINDOW_S, BurnWindow, fewest_events, fires
from tuner.budget.counters import Counter
from tuner.budget.events import Sli, slis
from tuner.errors import UserError
from tuner.slo import SloSet

BUDGET_WINDOW_S = 30 * 86_400.0
"""What the error budget is spread over; shorter where less was watched, which is told."""

LEAST_WATCHED_S = 3600.0
"""The shortest long window of an alert: what is left of a month is not told from less."""


class Seen(StrEnum):
    VALUE = "value"
    NO_TRAFFIC = "no_traffic"
    NO_DATA = "no_data"
    SHORT = "not_watched_long_enough"
    STALE = "stale"
    UNREACHABLE = "unreachable"


class Burning(StrEnum):
    FIRES = "fires"
    CALM = "calm"
    FEW = "too_few_events"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Share:
    """Bad events of all over a window; watched_s of it (seconds) were watched. bad and events are
    set only where seen is VALUE; reason says why it is not."""

    seen: Seen
    window_s: float
    watched_s: float
    bad: float = 0.0
    events: float = 0.0
    reason: str = ""

    @property
    def value(self) -> float | None:
        return self.bad / self.events if self.seen is Seen.VALUE else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of value, exact at 95 %, where each event stands for itself; None without a value."""
        from tuner.stats.rates import clopper_pearson

        return clopper_pearson(self.bad, self.events) if self.seen is Seen.VALUE else None


@dataclass(frozen=True, slots=True)
class Burn:
    """A pair of windows. least: events in the long one from which on it can fire."""

    window: BurnWindow
    budget: float
    least: int
    long: Share
    short: Share

    @property
    def state(self) -> Burning:
        long, short = self.long.value, self.short.value
        if long is None:
            return Burning.UNKNOWN
        if self.long.events < self.least:
            return Burning.FEW
        if short is None:  # no event just now: nothing burns
            return Burning.CALM if self.short.seen is Seen.NO_TRAFFIC else Burning.UNKNOWN
        firing = fires(self.window, self.budget, long=long, short=short,
                       events=self.long.events, least=self.least)  # fmt: skip
        return Burning.FIRES if firing else Burning.CALM

    def rate(self, share: Share) -> float | None:
        """How many times faster than it lasts the budget burns."""
        return None if share.value is None else share.value / self.budget


@dataclass(frozen=True, slots=True)
class Budget:
    """One clause. over: the budget window, as far as it was watched."""

    sli: Sli
    over: Share
    burns: tuple[Burn, ...]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the bad share, at 95 %; None for gaps, since those of a request hang together."""
        return None if self.sli.gaps else self.over.interval

    @property
    def allowed(self) -> float:
        """Events of those counted that may be bad."""
        return self.over.events * self.sli.budget

    @property
    def whole(self) -> bool:
        """Whether all of the budget window was watched."""
        return self.over.watched_s >= self.over.window_s

    @property
    def left(self) -> float | None:
        """Share of what the time watched allows, of the budget where that was all of its window;
        below 0 it is overspent. None where less than LEAST_WATCHED_S was watched."""
        if self.over.value is None or self.over.watched_s < LEAST_WATCHED_S:
            return None
        return 1 - self.over.value / self.sli.budget


@dataclass(frozen=True, slots=True)
class Budgets:
    """left_out: clauses without a budget, with the reason. fault: why there is none at all."""

    found: tuple[Budget, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


def read_budgets(source: MetricSource, slos: SloSet, *, least_events: int | None = None) -> Budgets:
    """The budgets of all clauses now; never raises for bad data. All series of the source count
    together. least_events: in the long window, None: by the budget."""
    status = source.status()
    if not status.up:
        return Budgets(fault=status.reason or "the target does not answer")
    try:
        found, left_out = slis(slos, of_source(source))
    except UserError as fault:
        return Budgets(fault=str(fault))
    windows = {window_s: _Window(source, window_s) for window_s in WINDOW_S.values()}
    whole = _Window(source, BUDGET_WINDOW_S)
    budgets = []
    for sli in found:
        shares = {window_s: window.share(sli) for window_s, window in windows.items()}
        least = fewest_events(sli.budget) if least_events is None else least_events
        burns = (
            Burn(w, sli.budget, least, shares[WINDOW_S[w.long]], shares[WINDOW_S[w.short]])
            for w in BURN_WINDOWS
        )
        budgets.append(Budget(sli, whole.share(sli, as_watched=True), tuple(burns)))
    return Budgets(tuple(budgets), left_out)


class _Window:
    """Counters over one window, each asked once."""

    def __init__(self, source: MetricSource, window_s: float) -> None:
        self._kept = source.over(window_s)
        self._status = self._kept.status()
        self._asked_s = window_s
        seen_s = self._status.watched_s
        self._watched_s = window_s if seen_s is None else min(window_s, seen_s)
        self._covered_s = self._status.window_s(window_s)
        self._buckets: dict[str, dict[float, Reading]] = {}
        self._readings: dict[Counter, Reading] = {}

    def share(self, sli: Sli, *, as_watched: bool = False) -> Share:
        """as_watched: over what was watched of the window, however little."""
        if not self._status.up:
            return self._without(Seen.UNREACHABLE, self._status.reason)
        if not as_watched and self._watched_s + self._kept.scrape_interval_s < self._asked_s:
            return self._without(Seen.SHORT, "")
        bad, why = self._sum(sli, sli.bad)
        events, why_no_events = self._sum(sli, sli.total)
        missing = why or why_no_events
        if missing is not None:
            return self._without(Seen(missing.outcome.value), missing.reason)
        if not events > 0:
            return self._without(Seen.NO_TRAFFIC, "no request was counted in the window")
        bad = min(max(bad, 0.0), events)
        return Share(Seen.VALUE, self._asked_s, self._watched_s, bad, events)

    def _without(self, seen: Seen, reason: str) -> Share:
        return Share(seen, self._asked_s, self._watched_s, reason=reason)

    def _sum(self, sli: Sli, terms: Sequence[tuple[int, Counter]]) -> tuple[float, Reading | None]:
        """(sum, the reading that makes it unknown)."""
        total = 0.0
        for sign, counter in terms:
            reading = self._read(sli, counter)
            if reading.ok:
                total += sign * (reading.value or 0.0)
            elif not (counter.sparse and reading.outcome is Outcome.NO_DATA):
                return 0.0, reading
        return total, None

    def _read(self, sli: Sli, counter: Counter) -> Reading:
        if counter not in self._readings:
            self._readings[counter] = self._ask(sli, counter)
        return self._readings[counter]

    def _ask(self, sli: Sli, counter: Counter) -> Reading:
        if sli.boundary is not None:
            if counter == sli.within_bound:
                return self._up_to(sli.histogram, sli.boundary.le)
            if counter.name == f"{sli.histogram}_count":
                return self._up_to(sli.histogram, math.inf)
        if not counter.by:
            return self._kept.increase(counter.name, self._covered_s)
        parts = self._kept.breakdown(counter.name, counter.by, self._covered_s)
        values = [parts[v].value or 0.0 for v in counter.values if v in parts]
        if values:
            return Reading(Outcome.VALUE, sum(values))
        if parts:
            return Reading(Outcome.NO_DATA, reason=f"{counter.name} has no such events")
        asked = self._kept.increase(counter.name, self._covered_s)
        unanswered = Reading(Outcome.UNREACHABLE, reason=f"{counter.name} was not answered")
        return unanswered if asked.ok else asked

    def _up_to(self, histogram: str, bound: float) -> Reading:
        """The events of a histogram up to a boundary; of all of them, at +Inf."""
        if histogram not in self._buckets:
            parts = self._kept.breakdown(f"{histogram}_bucket", "le", self._covered_s)
            bounds = ((bucket_bound(le), reading) for le, reading in parts.items())
            self._buckets[histogram] = {b: reading for b, reading in bounds if b is not None}
        found = self._buckets[histogram].get(bound)
        if found is not None:
            return found
        asked = self._kept.increase(f"{histogram}_count", self._covered_s)
        if not asked.ok:
            return asked
        reason = f"{histogram} has no bucket up to {bound:g} s in the window"
        return Reading(Outcome.NO_DATA, reason=reason)
