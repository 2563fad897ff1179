"""Which of a Prometheus' targets are the engines asked about, how they do, and why they are silent.

Without labels the engines are told from other targets by what they export (`vllm:…`). An empty
answer is looked into: target down, series gone, too few samples, or never exported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.sources import promql
from storage.sources.answers import stale, stale_after_s
from storage.sources.base import Outcome, Reading, SourceStatus
from storage.sources.exposition import STARTED, spellings
from storage.sources.gathered import (
    DOWN,
    newest_up,
    of_process,
    scrape_interval,
    target_labels,
    target_of,
    watched_for_s,
)
from storage.sources.matrix import Matrix
from storage.sources.promclient import PrometheusClient
from storage.sources.store import HORIZON_S

KEPT_S = 15.0
"""For how long it is not asked again which targets are engines and what they export."""

REACH_STEPS = 240
_ENGINES = '__name__=~"(vllm|sglang|slotune):.+"'

Engines = frozenset[tuple[str, str]]


@dataclass(slots=True)
class PromTargets:
    """labels: which series belong to them. Every method raises QueryError."""

    client: PrometheusClient
    labels: Mapping[str, str]
    _found: tuple[float, Engines] = field(default=(-math.inf, frozenset()))
    _names: tuple[float, frozenset[str]] = field(default=(-math.inf, frozenset()))

    @property
    def up(self) -> str:
        """`up` of the targets asked for; Prometheus gives it no labels but these."""
        return promql.selector("up", target_labels(self.labels))

    def found(self, now_s: float) -> Engines | None:
        """(job, instance) of the engines among the targets; None when none is found: all count."""
        asked_s, engines = self._found
        if abs(now_s - asked_s) >= KEPT_S:
            selected = promql.selector("", self.labels, extra=_ENGINES)
            query = f"group by (job, instance) (last_over_time({selected}[{HORIZON_S:.0f}s]))"
            answer = self.client.vector(query, now_s)
            engines = frozenset(target_of(labels) for labels, _ in answer)
            self._found = (now_s, engines)
        return engines or None

    def exported(self, now_s: float, scrape_interval_s: float) -> frozenset[str]:
        """The names that they export now."""
        asked_s, names = self._names
        if abs(now_s - asked_s) < KEPT_S:
            return names
        selected = [
            promql.selector("", {"job": job, "instance": instance})
            for job, instance in sorted(self.found(now_s) or ())
        ] or [promql.selector("", self.labels) if self.labels else '{__name__=~".+"}']
        lookback_s = max(2 * scrape_interval_s, 10.0)
        found = self.client.call(
            lambda connect: connect.get_label_values(
                "__name__",
                params={"match[]": selected, "start": now_s - lookback_s, "end": now_s},
            )
        )
        names = frozenset(str(name) for name in found) if isinstance(found, list) else frozenset()
        self._names = (now_s, names)
        return names

    def status(self, now_s: float, scrape_interval_s: float, reach_s: float) -> SourceStatus:
        """reach_s: for how far back it is to tell whether they were watched."""
        targets = self.found(now_s)
        samples = _of(targets, self.client.matrix(self.up, HORIZON_S, now_s))
        start_s = self._started_s(targets, now_s)
        if not samples:
            reason = "Prometheus scrapes no such target"
            return SourceStatus(False, None, start_s, scrape_interval_s, reason)
        newest = newest_up(samples)
        scrape_interval_s = scrape_interval(newest) or scrape_interval_s
        age_s = max(0.0, now_s - newest[-1][0])
        up = newest[-1][1] == 1
        watched_s = (
            watched_for_s(samples, now_s, scrape_interval_s)
            if reach_s <= HORIZON_S
            else self._known_for_s(targets, now_s, reach_s, scrape_interval_s)
        )
        reason = "" if up else DOWN
        return SourceStatus(up, age_s, start_s, scrape_interval_s, reason, watched_s)

    def _started_s(self, targets: Engines | None, now_s: float) -> float | None:
        """When the engine started that did so last (Unix seconds)."""
        selected = promql.selector(STARTED, target_labels(self.labels))
        found = self.client.vector(f"max by (job, instance) ({selected})", now_s)
        return max((at_s for labels, at_s in found if _mine(labels, targets)), default=None)

    def selectors(self, names: frozenset[str]) -> list[str]:
        """Of the series of these names: one, or two where labels tell a process' models apart."""
        own = target_labels(self.labels)
        shared = frozenset() if own == self.labels else frozenset(filter(of_process, names))
        return [
            promql.selector("", labels, extra=f'__name__=~"{"|".join(sorted(asked))}"')
            for asked, labels in ((names - shared, self.labels), (shared, own))
            if asked
        ]

    def info(self, name: str, labels: Mapping[str, str], now_s: float) -> dict[str, str] | None:
        """The labels of an info metric of one of the engines, without Prometheus' own."""
        selected = promql.selector(name, target_labels(self.labels) | dict(labels))
        found = self.client.vector(selected, now_s)
        targets = self.found(now_s) if found else None
        mine = next((row for row, _ in found if _mine(row, targets)), None)
        added = ("__name__", "job", "instance")
        return mine and {key: value for key, value in mine.items() if key not in added}

    def _known_for_s(
        self,
        targets: Engines | None,
        now_s: float,
        reach_s: float,
        scrape_interval_s: float,
    ) -> float | None:
        """Since when (seconds ago) Prometheus has scraped them; None where that is beyond reach_s.

        The first sample is looked for in ever finer steps: of thirty days, in three requests. What
        a target counted while it could not be scraped its counters tell afterwards.
        """
        start_s, end_s, began_s, step_s = now_s - reach_s, now_s, now_s, math.inf
        while step_s > scrape_interval_s:
            step_s = (end_s - start_s) / REACH_STEPS
            samples = _of(targets, self.client.series(self.up, start_s, end_s, step_s))
            began_s = min((points[0][0] for points in samples), default=end_s)
            if began_s - start_s < step_s / 2:
                break
            start_s, end_s = began_s - step_s, began_s
        if began_s - (now_s - reach_s) < scrape_interval_s:
            return None
        return max(0.0, now_s - began_s)  # the times of a range are rounded

    def silence(
        self,
        name: str,
        wanted: Mapping[str, str],
        query: str,
        window_s: float,
        scrape_interval_s: float,
        now_s: float,
    ) -> Reading:
        """Why a question about a metric has an empty answer."""
        targets = self.found(now_s)
        ups = [v for labels, v in self.client.vector(self.up, now_s) if _mine(labels, targets)]
        if ups and max(ups) == 0:
            return Reading(Outcome.UNREACHABLE, query=query, window_s=window_s, reason=DOWN)
        newest_s = self._last_seen(name, wanted, now_s)
        if newest_s is None:
            reason = f"{name} is not exported"
            return Reading(Outcome.NO_DATA, query=query, window_s=window_s, reason=reason)
        if window_s and now_s - newest_s <= stale_after_s(scrape_interval_s):
            reason = "fewer than two samples in the window yet"
            return Reading(Outcome.NO_DATA, None, query, window_s, 1, newest_s, reason=reason)
        return stale(query, window_s, newest_s, now_s)

    def _last_seen(self, name: str, wanted: Mapping[str, str], now_s: float) -> float | None:
        for spelling in spellings(name):
            found = self.client.matrix(promql.selector(spelling, wanted), HORIZON_S, now_s)
            if found:
                return max(points[-1][0] for _, points in found)
        return None


def _of(targets: Engines | None, found: Matrix) -> list[list[tuple[float, float]]]:
    return [points for labels, points in found if _mine(labels, targets)]


def _mine(labels: Mapping[str, str], targets: Engines | None) -> bool:
    return targets is None or target_of(labels) in targets
