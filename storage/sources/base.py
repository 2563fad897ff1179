"""The vocabulary every metric source speaks, so that diagnosis cannot tell them apart.

Five outcomes are kept apart everywhere: a value, no traffic (0/0), no data (not exported),
stale (exported, but too old) and unreachable. Windows are in seconds, times are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

MIN_WINDOW_INTERVALS = 4
"""A window shorter than this many scrapes may hold one sample, hence no rate."""


class Outcome(StrEnum):
    VALUE = "value"
    NO_TRAFFIC = "no_traffic"
    NO_DATA = "no_data"
    STALE = "stale"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer of a source. value is set only when outcome is VALUE.

    bound "≥" or "≤" marks a quantile that the histogram's outermost bucket cuts off: the value is
    that bucket's bound, never an interpolation past it. bucket: the edges between which a quantile
    truly lies; its value is interpolated. Of a time, "≥": it may have begun before it was watched.
    query is what was asked, in PromQL form.
    """

    outcome: Outcome
    value: float | None = None
    query: str = ""
    window_s: float = 0.0
    samples: int = 0
    at_s: float = 0.0
    bound: Literal["", "≥", "≤"] = ""
    reason: str = ""
    bucket: tuple[float, float] | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.VALUE


Labels = Mapping[str, str]
Agg = Literal["max", "sum", "min"]
REPLICA_LABELS = ("instance", "engine", "dp_rank", "model_name")
"""What tells engines apart: series that differ in none of them are of one engine."""

RangeKind = Literal["gauge", "peak", "rate", "mean", "quantile"]
"""gauge: as it stood at each step; peak: its greatest value in each step's window."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Is the target there, how old is the newest sample, has it restarted (Unix seconds).

    watched_s: for how long it has been read without a gap; a window longer than that would count
    growth that nobody saw as none. None where the source has been reading for longer than it tells.
    targets: where there are several, each one and why it gives nothing ("" where it gives metrics).
    """

    up: bool
    age_s: float | None
    process_start_s: float | None
    scrape_interval_s: float
    reason: str = ""
    watched_s: float | None = None
    targets: tuple[tuple[str, str], ...] = ()

    def window_s(self, wanted_s: float) -> float:
        """The longest window up to wanted_s that the samples cover, at least four scrapes."""
        seen_s = math.inf if self.watched_s is None else self.watched_s
        covered_s = min(wanted_s, seen_s + self.scrape_interval_s / 20)  # asked a little later
        return max(covered_s, MIN_WINDOW_INTERVALS * self.scrape_interval_s)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one look will ask about: sample names, and how far back. long_names are those of which
    long_s back are needed instead of window_s."""

    names: frozenset[str]
    window_s: float
    long_names: frozenset[str] = frozenset()
    long_s: float = 0.0


class MetricSource(Protocol):
    """A place to read one target's metrics from. All methods return; none raises for bad data."""

    scrape_interval_s: float

    def status(self) -> SourceStatus: ...

    def at_once(self, wanted: Wanted) -> MetricSource:
        """A source for one look: it has read all that is wanted, and answers as of one moment."""
        ...

    def over(self, window_s: float) -> MetricSource:
        """The source that answers windows of that length: itself, or what is kept for longer."""
        ...

    def names(self) -> frozenset[str]:
        """Sample names exported now (`vllm:num_requests_running`, `…_bucket`, `…_total`)."""
        ...

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        """Labels of an info metric (value 1) such as `vllm:cache_config_info`; None if absent."""
        ...

    def gauge(self, name: str, labels: Labels | None = None, agg: Agg = "max") -> Reading:
        """The newest value, series folded with agg. A sum is over engines: what several processes
        of one tell (REPLICA_LABELS) counts once, by the greatest."""
        ...

    def rate(self, name: str, window_s: float, labels: Labels | None = None) -> Reading:
        """Per-second increase of a counter, summed over series, resets allowed for."""
        ...

    def increase(self, name: str, window_s: float, labels: Labels | None = None) -> Reading: ...

    def mean(self, histogram: str, window_s: float, labels: Labels | None = None) -> Reading:
        """Σ increase(_sum) / Σ increase(_count); samples = observations in the window."""
        ...

    def quantile(
        self, histogram: str, q: float, window_s: float, labels: Labels | None = None
    ) -> Reading:
        """histogram_quantile over the window's bucket increases, q in (0, 1)."""
        ...

    def breakdown(
        self, name: str, by: str, window_s: float | None = None, labels: Labels | None = None
    ) -> dict[str, Reading]:
        """One reading per value of label `by` ("instance,engine": of both, joined by "/"): the
        gauge (window None), summed over engines, or the increase."""
        ...

    def range(
        self,
        kind: RangeKind,
        name: str,
        *,
        start_s: float,
        end_s: float,
        step_s: float,
        window_s: float = 60.0,
        q: float = 0.95,
        labels: Labels | None = None,
        agg: Agg = "max",
    ) -> list[tuple[float, float | None]]:
        """(time, value) points for a chart; None where there is no traffic or no data. agg: how
        gauges and peaks are folded."""
        ...

    def close(self) -> None: ...
