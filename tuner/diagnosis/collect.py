"""Reads every signal of the registry from one metric source, once.

Invariant: no window is shorter than four scrape intervals, and a missing metric becomes a reading
that names it; nothing here judges.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from storage.sources.base import MetricSource, Outcome, Reading, Wanted
from storage.sources.exposition import spellings
from tuner.diagnosis.collect_replicas import by_replica
from tuner.diagnosis.registry import (
    BREAKDOWNS,
    LATENCIES,
    SPECS,
    BreakdownSpec,
    SignalSpec,
    dialect_of,
    latency_specs,
)
from tuner.diagnosis.signals import Signals
from tuner.diagnosis.trend import growing_s, mean, rise
from tuner.slo.grammar import Clause

GROWTH_S = 600.0
"""How far back the queue's growth is looked for; twice the time that makes it an overload."""

LONG = ("waiting", "prefix_queries", "prefix_hits")
"""Signals looked at over longer than the window."""

INFOS = ("vllm:cache_config_info", "slotune:scheduler_config_info")

BASELINE_WINDOWS = 5
"""The hit rate "before" is that of this many windows."""

CONFIG_NAMES = {
    "max_num_batched_tokens": "chunk_size",
    "num_gpu_blocks": "num_kv_blocks",
    "device_type": "device",
}
"""What engines call the tree's settings."""


def collect(
    source: MetricSource,
    *,
    window_s: float,
    dialect: str | None = None,
    server_info: Mapping[str, Any] | None = None,
    quantiles: Mapping[str, Iterable[float]] | None = None,
    target: str = "",
    at_s: float | None = None,
    client: Mapping[str, Reading] | None = None,
) -> Signals:
    """One look over the last window_s: no shorter than four scrapes, no longer than was watched.

    server_info is the engine's own `/server_info`; quantiles adds quantiles of latencies by name
    ({"ttft": [0.9]}), as SLOs need them; at_s is the evaluation's Unix time; client what clients
    saw. Never raises for bad data: an unreachable source gives signals whose readings all say so.
    """
    look = _Look(
        source.at_once(_wanted(window_s)), window_s, dialect, time.time() if at_s is None else at_s
    )
    readings = {spec.name: look.read(spec) for spec in (*SPECS, *_extra(quantiles or {}))}
    readings |= look.trends()
    readings |= look.before(readings) | dict(client or {})
    breakdowns = {spec.name: look.split(spec) for spec in BREAKDOWNS}
    breakdowns |= by_replica(look.source, look.window_s, look.named)
    return Signals(
        target, look.dialect, look.at_s, look.window_s, look.status, readings, breakdowns,
        config=look.config(server_info or {}), models=look.models(),
    )  # fmt: skip


def _wanted(window_s: float) -> Wanted:
    """Every sample that any signal of any dialect may be read from."""
    names = {"process_start_time_seconds", *INFOS}
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
            case "mean":
                return source.mean(name, window_s, labels)
            case "quantile":
                return source.quantile(name, spec.q or 0.5, window_s, labels)

    def split(self, spec: BreakdownSpec) -> dict[str, Reading]:
        name = self.resolve(spec)
        if name is None:
            return {}
        return dict(self.source.breakdown(name, spec.by, self.window_s if spec.windowed else None))

    def _series(self, signal: str, span_s: float) -> tuple[str, list[tuple[float, float]]]:
        spec = next(spec for spec in SPECS if spec.name == signal)
        name = self.resolve(spec)
        if name is None:
            return "", []
        step_s = max(self.source.scrape_interval_s, span_s / 60)
        start_s = self.at_s - step_s * int(span_s / step_s)  # so that the last step is now
        points = self.source.range("gauge", name, start_s=start_s, end_s=self.at_s, step_s=step_s)
        return name, [(at, v) for at, v in points if v is not None and _plausible(spec, v)]

    def trends(self) -> dict[str, Reading]:
        """Means of gauges over the window, how often any request ran, how the queue grew."""
        readings: dict[str, Reading] = {}
        seen = {s: self._series(s, self.window_s) for s in ("running", "waiting", "kv_usage")}
        for signal, (name, points) in seen.items():
            values = [value for _, value in points]
            query = f"avg_over_time({name}[{self.window_s:g}s])"
            if values:
                readings[f"{signal}_mean"] = self._derived(mean(values), query, values)
            if signal == "running" and values:
                readings |= self._running(seen)
            if signal == "waiting" and len(values) >= 2:
                rose = rise(values)
                readings["waiting_rise"] = self._derived(rose, f"delta({name})", values)
                readings["restart"] = self._derived(self._restarted(points), name, values)
        name, points = self._series("waiting", self.status.window_s(GROWTH_S))
        if len(points) >= 2:
            grown_s = growing_s(points)
            values = [value for _, value in points]
            readings["waiting_growing_s"] = self._derived(grown_s, f"deriv({name})", values)
        return readings

    def _running(
        self, seen: Mapping[str, tuple[str, list[tuple[float, float]]]]
    ) -> dict[str, Reading]:
        """At how many scrapes requests ran, how many at most, and how many while others waited."""
        (name, points), (queue, waiting) = seen["running"], seen["waiting"]
        values, over = [value for _, value in points], f"[{self.window_s:g}s:]"
        share = mean([value > 0 for value in values])
        most, query = max(values), f"avg_over_time(({name} > bool 0){over})"
        told = {"running_share": self._derived(share, query, values)}
        told["running_most"] = self._derived(most, f"max_over_time({name}{over})", values)
        at_wait = {at for at, value in waiting if value > 0}
        if beside := [value for at, value in points if at in at_wait]:
            query = f"avg_over_time(({name} and {queue} > 0){over})"
            told["running_at_wait"] = self._derived(mean(beside), query, beside)
        return told

    def _derived(self, value: float, query: str, values: list[float]) -> Reading:
        return Reading(Outcome.VALUE, value, query, self.window_s, len(values), self.at_s)

    def _restarted(self, points: list[tuple[float, float]]) -> float:
        """1 when samples of the window come from before the process now running had started."""
        start_s = self.status.process_start_s
        return float(start_s is not None and bool(points) and points[0][0] < start_s - 1.0)

    def before(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """The prefix hit rate over the window and over the longer time before it, and the prompt
        tokens that were written to the KV pool in the longer one."""
        rates = {"hit_rate": _ratio(readings["prefix_hits"], readings["prefix_queries"])}
        hit, asked = self.named("prefix_hits"), self.named("prefix_queries")
        if hit and asked:
            long_s = BASELINE_WINDOWS * self.window_s
            hits, queries = self.source.increase(hit, long_s), self.source.increase(asked, long_s)
            if self.status.window_s(long_s) > self.window_s:
                rates["hit_rate_before"] = _ratio(hits, queries)
            if hits.ok and queries.ok:
                written = (queries.value or 0.0) - (hits.value or 0.0)
                query = f"{queries.query} - {hits.query}"
                rates["prefix_written"] = replace(queries, value=written, query=query)
        return rates

    def named(self, signal: str) -> str | None:
        """The exported name of a signal of the registry."""
        return self.resolve(next(spec for spec in SPECS if spec.name == signal))

    def models(self) -> tuple[str, ...]:
        spec = next(spec for spec in SPECS if spec.name == "running")
        name = self.resolve(spec)
        if name is None:
            return ()
        return tuple(sorted(m for m in self.source.breakdown(name, "model_name") if m))

    def config(self, server_info: Mapping[str, Any]) -> dict[str, str]:
        """Settings by our knob names: what the engine exports, then what it says of itself."""
        found: dict[str, str] = {}
        if self.status.up:
            for info in INFOS:
                found |= self.source.info(info) or {}
        plain = (str, int, float, bool)
        found |= {k: str(v) for k, v in server_info.items() if isinstance(v, plain)}
        for knob, facts in (server_info.get("knobs") or {}).items():
            found[knob] = str(facts["value"])
            found[f"{knob}_high"] = str(facts["high"])
        return {CONFIG_NAMES.get(k, k): v for k, v in found.items() if v != "None"}


def _ratio(top: Reading, bottom: Reading) -> Reading:
    for reading in (bottom, top):
        if not reading.ok:
            return reading
    query = f"{top.query} / {bottom.query}"
    if not bottom.value:
        return Reading(Outcome.NO_TRAFFIC, query=query, reason="no token was looked up")
    return replace(top, value=(top.value or 0.0) / bottom.value, query=query)


def _plausible(spec: SignalSpec, value: float) -> bool:
    """A gauge of a share lies between 0 and 1, as far as floats do."""
    return not (spec.unit == "share" and spec.kind == "gauge_max") or -0.01 <= value <= 1.01
