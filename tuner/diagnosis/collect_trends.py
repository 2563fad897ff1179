"""How the gauges went over the window: means, extremes, growth of the queue.

Invariant: figures are of all engines together (running and waiting are sums, as the cap they are
held against), and each reading's query is the PromQL that gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from storage.sources import promql
from storage.sources.base import Agg, Labels, MetricSource, Outcome, Reading
from tuner.diagnosis.trend import grew_throughout, growing_s, mean, rise, third

POINTS = 60
"""As many samples are looked at over a span, where there are so many scrapes."""

OF_REQUESTS = ("running", "waiting")
OLDEST_START, STARTED_ANEW = "oldest_start", "started_anew"
"""A reading and a breakdown: when the engine that runs longest began, and those that began inside
the window beside it (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class Course:
    """A gauge's samples, (Unix seconds, value), each the answer to `asked`, over span_s."""

    asked: str
    span_s: float
    step_s: float
    points: Sequence[tuple[float, float]]

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]

    def over(self, function: str, asked: str = "") -> str:
        """PromQL of a function over the span: of the samples, or of another expression."""
        window = promql.subquery(asked or self.asked, self.span_s, self.step_s)
        return f"{function}({window})"

    def reading(self, value: float, query: str, values: Sequence[float] | None = None) -> Reading:
        seen = self.values if values is None else values
        at_s = self.points[-1][0] if self.points else 0.0
        return Reading(Outcome.VALUE, value, query, self.span_s, len(seen), at_s)


def course(
    source: MetricSource, name: str, agg: Agg, span_s: float, at_s: float,
    plausible: Callable[[float], bool] = lambda _: True, labels: Labels | None = None,
) -> Course:  # fmt: skip
    """Of the exported gauge `name`, up to at_s; samples that are not plausible are left out."""
    step_s = max(source.scrape_interval_s, span_s / POINTS)
    start_s = at_s - step_s * int(span_s / step_s)  # so that the last step is now
    ask = partial(source.range, start_s=start_s, end_s=at_s, step_s=step_s, agg=agg,
                  labels=labels)  # fmt: skip
    points = [(at, v) for at, v in ask("gauge", name) if v is not None and plausible(v)]
    return Course(source.gauge(name, labels, agg).query, span_s, step_s, points)


def trends(
    seen: Mapping[str, Course], queue: Course | None, started_s: float | None, started: str
) -> dict[str, Reading]:
    """Readings of the courses of gauges over the window, and of the queue's over longer.

    started_s: when the process that runs longest began (Unix seconds), the answer to the query
    `started`.
    """
    readings: dict[str, Reading] = {}
    for signal, gauge in seen.items():
        if gauge.points:
            query = gauge.over("avg_over_time")
            readings[f"{signal}_mean"] = gauge.reading(mean(gauge.values), query)
            if signal in OF_REQUESTS:
                readings[f"{signal}_share"] = share_above_0(gauge)
    if (running := seen.get("running")) is not None and running.points:
        readings |= _running(running, seen.get("waiting"))
    if (waiting := seen.get("waiting")) is not None and len(waiting.points) >= 2:
        readings["waiting_rise"] = waiting.reading(rise(waiting.values), _risen(waiting))
        anew = started_s is not None and waiting.points[0][0] < started_s - 1.0
        query = f"{started} > bool (time() - {waiting.span_s:g})"
        readings["restart"] = waiting.reading(float(anew), query)
    if queue is not None and len(queue.points) >= 2:
        drawn = promql.subquery(queue.asked, queue.span_s, queue.step_s)
        grown = queue.reading(growing_s(queue.points), drawn)
        readings["waiting_growing_s"] = replace(
            grown, bound="≥" if grew_throughout(queue.points) else ""
        )
    return readings


def share_above_0(gauge: Course) -> Reading:
    """At how many of the scrapes it was above 0."""
    share = mean([value > 0 for value in gauge.values])
    return gauge.reading(share, gauge.over("avg_over_time", f"{gauge.asked} > bool 0"))


def _running(running: Course, waiting: Course | None) -> dict[str, Reading]:
    """How many ran at most, and how many while others waited."""
    most = running.reading(max(running.values), running.over("max_over_time"))
    told = {"running_most": most}
    at_wait = {at for at, value in waiting.points if value > 0} if waiting is not None else set()
    beside = [value for at, value in running.points if at in at_wait]
    if waiting is not None and beside:
        query = running.over("avg_over_time", f"{running.asked} and {waiting.asked} > 0")
        told["running_at_wait"] = running.reading(mean(beside), query, beside)
    return told


def _risen(waiting: Course) -> str:
    """PromQL of `rise`: the last third's mean less the first third's."""
    third_s = third(waiting.values) * waiting.step_s
    last = promql.subquery(waiting.asked, third_s, waiting.step_s)
    before_s = waiting.span_s - third_s
    first = promql.subquery(waiting.asked, third_s, waiting.step_s, before_s=before_s)
    return f"avg_over_time({last}) - avg_over_time({first})"
