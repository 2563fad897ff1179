"""Reads every signal of the registry from one metric source, once.

Invariant: no window is shorter than four scrape intervals, and a missing metric becomes a reading
that names it; nothing here judges.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from storage.sources.base import MetricSource, Outcome, Reading, Wanted
from storage.sources.exposition import STARTED, spellings
from tuner.diagnosis.collect_replicas import by_replica, replicas
from tuner.diagnosis.collect_settings import INFOS, KnownSettings, settings
from tuner.diagnosis.collect_trends import (
    OLDEST_START,
    STARTED_ANEW,
    Course,
    course,
    trends,
)
from tuner.diagnosis.registry import (
    BREAKDOWNS,
    LATENCIES,
    SIGNALS,
    SPECS,
    BreakdownSpec,
    SignalSpec,
    dialect_of,
    latency_specs,
)
from tuner.diagnosis.signals import Signals
from tuner.server_side.series import FOLDED
from tuner.slo.grammar import Clause

GROWTH_S = 600.0
"""How far back the queue's growth is looked for; twice the time that makes it an overload."""

LONG = ("waiting", "prefix_queries", "prefix_hits")
"""Signals looked at over longer than the window."""

ESTIMATES = ("flops", "read_bytes", "write_bytes")

BASELINE_WINDOWS = 5
"""The hit rate "before" is that of this many windows."""


def collect(
    source: MetricSource,
    *,
    window_s: float,
    dialect: str | None = None,
    known: Mapping[str, Any] | None = None,
    info_by_instance: Mapping[str, Mapping[str, Any]] | None = None,
    quantiles: Mapping[str, Iterable[float]] | None = None,
    target: str = "",
    at_s: float | None = None,
    client: Mapping[str, Reading] | None = None,
) -> Signals:
    """One look over the last window_s: no shorter than four scrapes, no longer than was watched.

    known: settings of all engines, as a person or the one server's `/server_info` tells them;
    info_by_instance: each server's own. quantiles adds quantiles of latencies by name
    ({"ttft": [0.9]}), as SLOs need them; at_s is the evaluation's Unix time; client what clients
    saw. Never raises for bad data: an unreachable source gives signals whose readings all say so.
    """
    look = _Look(
        source.at_once(_wanted(window_s)), window_s, dialect, time.time() if at_s is None else at_s
    )
    readings = {spec.name: look.read(spec) for spec in (*SPECS, *_extra(quantiles or {}))}
    readings |= look.not_estimated(readings)
    readings |= look.trends()
    readings |= look.before(readings) | dict(client or {})
    breakdowns = {spec.name: look.split(spec) for spec in BREAKDOWNS}
    found = replicas(look.source, look.named("running"))
    breakdowns |= by_replica(look.source, look.window_s, look.at_s, look.named, found)
    breakdowns |= look.started_anew(readings[OLDEST_START])
    config, each = settings(
        look.source if look.status.up else None, look.named, found,
        KnownSettings(known or {}, info_by_instance or {}),
    )  # fmt: skip
    return Signals(
        target, look.dialect, look.at_s, look.window_s, look.status, readings, breakdowns,
        config=config, models=look.models(), config_by_replica=each,
    )  # fmt: skip


def _wanted(window_s: float) -> Wanted:
    """Every sample that any signal of any dialect may be read from."""
    names = {STARTED, *INFOS}
    for spec in SPECS:
        names |= _samples(spec.vllm + spec.sglang, histogram=spec.kind in ("mean", "quantile"))
    for split in BREAKDOWNS:
        names |= _samples(split.vllm + split.sglang, histogram=False)
    long = {name for spec in SPECS if spec.name in LONG for name in spec.vllm + spec.sglang}
    long_s = max(GROWTH_S, BASELINE_WINDOWS * window_s)
    return Wanted(frozenset(names), window_s, frozenset(_samples(tuple(long))), long_s)


def _samples(names: Iterable[str], *, histogram: bool = False) -> set[str]:
    if histogram:
        return {f"{name}_{end}" for name in names for end in ("bucket", "sum", "count")}
    return {spelling for name in names for spelling in spellings(name)}


def asked_quantiles(clauses: Iterable[Clause]) -> dict[str, set[float]]:
    """The quantiles that SLOs name, by latency: what `collect` is to read besides its own."""
    asked: dict[str, set[float]] = {}
    for clause in clauses:
        if clause.quantile is not None:
            asked.setdefault(clause.metric, set()).add(clause.quantile)
    return asked


def _extra(quantiles: Mapping[str, Iterable[float]]) -> list[SignalSpec]:
    """Specs of quantiles the registry does not hold; the mean comes along at no loss."""
    return [
        spec
        for metric, wanted in quantiles.items()
        if metric in LATENCIES
        for spec in latency_specs(metric, tuple(wanted))[1:]
    ]


class _Look:
    """A source seen once: names and status asked for at the start, silent once unreachable."""

    def __init__(
        self, source: MetricSource, window_s: float, dialect: str | None, at_s: float
    ) -> None:
        self.source, self.at_s = source, at_s
        self.status = source.status()
        self.window_s = self.status.window_s(window_s)
        self.names = source.names() if self.status.up else frozenset()
        self.dialect = dialect or dialect_of(self.names) or "vllm"

    def resolve(self, spec: SignalSpec | BreakdownSpec) -> str | None:
        for name in spec.names(self.dialect):
            if name in self.names or f"{name}_bucket" in self.names:
                return name
        return None

    def absent(self, spec: SignalSpec | BreakdownSpec) -> Reading:
        if not self.status.up:
            reason = self.status.reason or "the target does not answer"
            return Reading(Outcome.UNREACHABLE, reason=reason)
        names = spec.names(self.dialect)
        if isinstance(spec, SignalSpec) and names and spec.beside in self.names:
            return Reading(Outcome.VALUE, 0.0, query=names[0], window_s=self.window_s)
        wanted = names[0] if names else f"{spec.name} (no such metric in {self.dialect})"
        return Reading(Outcome.NO_DATA, query=wanted, reason=f"{wanted} is not exported")

    def read(self, spec: SignalSpec) -> Reading:
        name = self.resolve(spec)
        if name is None:
            return self.absent(spec)
        reading = self._ask(spec, name)
        if reading.ok and not _plausible(spec, reading.value or 0.0):
            reason = f"{name} is {reading.value:g}, which is no share of a whole"
            return Reading(Outcome.NO_DATA, query=reading.query, reason=reason)
        return reading

    def not_estimated(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """vLLM exports its estimates also where it makes none: they stay 0 whatever is computed."""
        if not any(readings[name].value for name in ("generated", "prompted")):
            return {}
        found = {}
        for name in ESTIMATES:
            if readings[name].value == 0 and (metric := self.named(name)):
                reason = f"{metric} stays 0 while tokens are computed"
                found[name] = Reading(Outcome.NO_DATA, query=metric, reason=reason)
        return found

    def _ask(self, spec: SignalSpec, name: str) -> Reading:
        source, window_s = self.source, self.window_s
        labels = spec.labels_of(name) or None
        match spec.kind:
            case "gauge_sum":
                return source.gauge(name, labels, "sum")
            case "gauge_max":
                return source.gauge(name, labels, "max")
            case "rate":
                return source.rate(name, window_s, labels)
            case "increase":
                return source.increase(name, window_s, labels)
            case "rate_max":
                return _greatest(source.breakdown(name, spec.by, window_s, labels), name, window_s)
            case "mean":
                return source.mean(name, window_s, labels)
            case "quantile":
                return source.quantile(name, spec.q or 0.5, window_s, labels)

    def split(self, spec: BreakdownSpec) -> dict[str, Reading]:
        name = self.resolve(spec)
        if name is None:
            return {}
        return dict(self.source.breakdown(name, spec.by, self.window_s if spec.windowed else None))

    def trends(self) -> dict[str, Reading]:
        """What the gauges did over the window, and the queue over longer."""
        seen = {signal: self._course(signal, self.window_s) for signal in FOLDED}
        queue = self._course("waiting", self.status.window_s(GROWTH_S))
        known = {signal: gauge for signal, gauge in seen.items() if gauge is not None}
        oldest = self.source.gauge(STARTED, agg="min")
        start_s = self.status.process_start_s if oldest.value is None else oldest.value
        return trends(known, queue, start_s, oldest.query) | {OLDEST_START: oldest}

    def started_anew(self, oldest: Reading) -> dict[str, dict[str, Reading]]:
        """The starts (Unix seconds) of the instances that began inside the window, where others
        have run for longer."""
        since_s, newest_s = self.at_s - self.window_s, self.status.process_start_s
        if oldest.value is None or newest_s is None or not oldest.value < since_s < newest_s:
            return {}
        parts = self.source.breakdown(STARTED, "instance")
        return {STARTED_ANEW: {k: r for k, r in parts.items() if k and (r.value or 0.0) > since_s}}

    def _course(self, signal: str, span_s: float) -> Course | None:
        name = self.named(signal)
        if name is None:
            return None
        plausible = partial(_plausible, SIGNALS[signal])
        return course(self.source, name, FOLDED[signal], span_s, self.at_s, plausible)

    def before(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """The prefix hit rate over the window and over the longer time before it, and the prompt
        tokens that were written to the KV pool in the longer one."""
        rates = {"hit_rate": _ratio(readings["prefix_hits"], readings["prefix_queries"])}
        hit, asked = self.named("prefix_hits"), self.named("prefix_queries")
        if hit and asked:
            long_s = BASELINE_WINDOWS * self.window_s
            hits, queries = self.source.increase(hit, long_s), self.source.increase(asked, long_s)
            before = _ratio(hits, queries)
            if self.status.window_s(long_s) > self.window_s:
                rates["hit_rate_before"] = before
            if before.value is not None:
                rates["prefix_written"] = self._written(queries, before.value, long_s)
        return rates

    def _written(self, queries: Reading, hit_rate: float, long_s: float) -> Reading:
        """Prompt tokens that no hit spared. vLLM up to 0.9 looks a waiting request up at every
        step and counts its tokens each time: no more are written than prompts were read."""
        prompted = self.named("prompted")
        read = self.source.increase(prompted, long_s) if prompted else queries
        least = min((queries, read if read.ok else queries), key=lambda r: r.value or 0.0)
        return replace(least, value=(least.value or 0.0) * (1.0 - hit_rate))

    def named(self, signal: str) -> str | None:
        """The exported name of a signal of the registry."""
        return self.resolve(SIGNALS[signal])

    def models(self) -> tuple[str, ...]:
        name = self.named("running")
        if name is None:
            return ()
        return tuple(sorted(m for m in self.source.breakdown(name, "model_name") if m))


def _ratio(top: Reading, bottom: Reading) -> Reading:
    for reading in (bottom, top):
        if not reading.ok:
            return reading
    query = f"{top.query} / {bottom.query}"
    if not bottom.value:
        return Reading(Outcome.NO_TRAFFIC, query=query, reason="no token was looked up")
    return replace(top, value=(top.value or 0.0) / bottom.value, query=query)


def _greatest(parts: Mapping[str, Reading], name: str, window_s: float) -> Reading:
    """The greatest rate per second of a counter's parts; NO_DATA without any."""
    told = [reading for reading in parts.values() if reading.value is not None]
    if not told:
        reason = f"{name} has fewer than two samples in the window yet"
        return Reading(Outcome.NO_DATA, query=name, window_s=window_s, reason=reason)
    most = max(told, key=lambda reading: reading.value or 0.0)
    query = f"max({most.query}) / {most.window_s:g}"
    return replace(most, value=(most.value or 0.0) / most.window_s, query=query)


def _plausible(spec: SignalSpec | BreakdownSpec, value: float) -> bool:
    """A gauge of a share lies between 0 and 1, as far as floats do."""
    gauge = isinstance(spec, SignalSpec) and spec.kind == "gauge_max"
    return not (gauge and spec.unit == "share") or -0.01 <= value <= 1.01
