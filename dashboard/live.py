"""One reading of everything the overview shows, from any metric source and engine dialect.

Signals and their names are the diagnosis registry's, resolved against what the target exports now;
a metric that no name resolves is a NO_DATA reading that says which one is missing. Once
the source is unreachable nothing more is asked of it, so a page never waits for 30 timeouts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from storage.sources.base import (
    MetricSource,
    Outcome,
    RangeKind,
    Reading,
    SourceStatus,
    Wanted,
)
from tuner.diagnosis.collect_replicas import replicas
from tuner.diagnosis.collect_settings import INFOS, KnownSettings, settings
from tuner.diagnosis.context import Case
from tuner.diagnosis.registry import SIGNALS, SignalSpec
from tuner.diagnosis.signals import Signals
from tuner.diagnosis.thresholds import DEFAULT

LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue", "prefill")
QUANTILES = (0.5, 0.95, 0.99)
SIZES = ("running", "kv_pool_tokens", "kv_page_tokens")
"""Signals that tell how many engines there are, and how large their KV pools."""

STEPS = 120
"""Points of a chart."""

LIVE_STEP_S = 30.0
"""From longer steps on a chart shows a gauge's peaks: a sample now and then would miss them."""


def _names(signal: str) -> tuple[str, ...]:
    """The metrics that may stand for a signal, in the order they are looked for."""
    spec = SIGNALS[signal]
    return (*spec.vllm, *spec.sglang)


def labels_of(signal: str, name: str) -> dict[str, str] | None:
    """Of the series that count where a signal is read from this metric; None where all do."""
    spec = SIGNALS[signal]
    return (spec.labels_of(name) or None) if isinstance(spec, SignalSpec) else None


class Watched:
    """A source seen through one look: names resolved once, and silent once it is unreachable."""

    def __init__(self, source: MetricSource) -> None:
        self.source = source
        self._unreachable: Reading | None = None
        self.status = source.status()
        self.names: frozenset[str] = source.names()

    def resolve(self, signal: str) -> str | None:
        """The exported name of a signal; a histogram by its base name."""
        for name in _names(signal):
            if name in self.names or f"{name}_bucket" in self.names:
                return name
        return None

    def ask(self, signal: str, question: Callable[[MetricSource, str], Reading]) -> Reading:
        if self._unreachable is not None:
            return self._unreachable
        name = self.resolve(signal)
        if name is None and self.names:
            wanted = _names(signal)[0]
            return Reading(Outcome.NO_DATA, query=wanted, reason=f"{wanted} is not exported")
        reading = question(self.source, name or _names(signal)[0])
        if reading.outcome is Outcome.UNREACHABLE:
            self._unreachable = reading
        return reading

    def breakdown(self, signal: str, by: str, window_s: float | None) -> dict[str, Reading]:
        name = self.resolve(signal)
        if name is None or self._unreachable is not None:
            return {}
        return self.source.breakdown(name, by, window_s)

    def buckets(self, signal: str, window_s: float) -> dict[str, Reading]:
        """Increase of each cumulative bucket of a histogram over the window, by `le`."""
        name = self.resolve(signal)
        if name is None or self._unreachable is not None:
            return {}
        return self.source.breakdown(f"{name}_bucket", "le", window_s, labels_of(signal, name))

    @property
    def reachable(self) -> bool:
        return self._unreachable is None


@dataclass(frozen=True, slots=True)
class Identity:
    """What is being watched. engine is "" where the exposition does not tell. max_num_seqs,
    kv_tokens: how many may run and what the KV pools hold, of all engines; None is not known."""

    engine: str
    models: tuple[str, ...]
    max_num_seqs: float | None
    kv_tokens: float | None


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency histogram over the window; quantiles by q, buckets cumulative by bound (s)."""

    name: str
    mean: Reading
    quantiles: Mapping[float, Reading]
    buckets: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All live figures of one look. Rates are per second over window_s."""

    at_s: float
    window_s: float
    status: SourceStatus
    identity: Identity
    running: Reading
    waiting: Reading
    kv_usage: Reading
    finished: Reading
    prompt_rate: Reading
    generation_rate: Reading
    prefix_hit_rate: Reading
    preemptions: Reading
    rejections: Reading
    binding: Mapping[str, Reading]
    latencies: Mapping[str, Latency] = field(default_factory=dict)


def take(source: MetricSource, window_s: float) -> Snapshot:
    """Read everything once; never raises for missing or bad data.

    The window is cut to what the source has watched: before that nothing was seen, which is not 0.
    """
    watched = Watched(source.over(window_s))
    window_s = watched.status.window_s(window_s)
    running = watched.ask("running", lambda s, n: s.gauge(n, agg="sum"))
    return Snapshot(
        at_s=time.time(),
        window_s=window_s,
        status=watched.status,
        identity=_identity(watched),
        running=running,
        waiting=watched.ask("waiting", lambda s, n: s.gauge(n, agg="sum")),
        kv_usage=watched.ask("kv_usage", lambda s, n: s.gauge(n, agg="max")),
        finished=watched.ask("finished", lambda s, n: s.rate(n, window_s)),
        prompt_rate=watched.ask("prompted", lambda s, n: s.rate(n, window_s)),
        generation_rate=watched.ask(
            "generated", lambda s, n: s.rate(n, window_s, labels_of("generated", n))
        ),
        prefix_hit_rate=_hit_rate(watched, window_s),
        preemptions=watched.ask("preemptions", lambda s, n: s.increase(n, window_s)),
        rejections=watched.ask("rejections", lambda s, n: s.increase(n, window_s)),
        binding=watched.breakdown("binding", "reason", window_s),
        latencies={name: _latency(watched, name, window_s) for name in LATENCIES},
    )


def binding_shares(binding: Mapping[str, Reading]) -> list[tuple[str, float]]:
    """(reason, share of steps) largest first; empty without steps in the window."""
    steps = {reason: reading.value or 0.0 for reason, reading in binding.items() if reading.ok}
    total = sum(steps.values())
    if total <= 0:
        return []
    shares = [(reason, count / total) for reason, count in steps.items() if count > 0]
    return sorted(shares, key=lambda share: -share[1])


def attainment(
    buckets: tuple[tuple[float, float], ...], bound_s: float
) -> tuple[float, float] | None:
    """Least and greatest share of observations ≤ bound_s that the buckets allow; None if empty."""
    if not buckets or buckets[-1][1] <= 0:
        return None
    total = buckets[-1][1]
    low = max((count for bound, count in buckets if bound <= bound_s), default=0.0)
    high = min((count for bound, count in buckets if bound >= bound_s), default=total)
    return min(1.0, low / total), min(1.0, high / total)


def chart_points(
    watched: Watched, signal: str, *, span_s: float, window_s: float, q: float | None = None
) -> list[tuple[float, float | None]]:
    """(Unix seconds, value) of a signal over the last span_s; gaps where nothing was measured.

    Rates and quantiles are over window_s, and over a step where that is longer.
    """
    name = watched.resolve(signal)
    if name is None:
        if watched.names:
            return []
        name = _names(signal)[0]  # a silent target: what was read before it fell silent is shown
    end_s = time.time()
    step_s = max(watched.source.scrape_interval_s, span_s / STEPS)
    gauges = ("running", "waiting", "kv_usage")
    gauge: RangeKind = "peak" if step_s > LIVE_STEP_S else "gauge"
    kind: RangeKind = "quantile" if q is not None else gauge if signal in gauges else "rate"
    return watched.source.range(
        kind,
        name,
        start_s=end_s - span_s,
        end_s=end_s,
        step_s=step_s,
        window_s=max(window_s, step_s),
        q=q or 0.95,
        labels=labels_of(signal, name),
        agg="max" if signal == "kv_usage" else "sum",
    )


def _hit_rate(watched: Watched, window_s: float) -> Reading:
    queries = watched.ask("prefix_queries", lambda s, n: s.increase(n, window_s))
    hits = watched.ask("prefix_hits", lambda s, n: s.increase(n, window_s))
    for reading in (queries, hits):
        if not reading.ok:
            return reading
    if not queries.value:
        return Reading(
            Outcome.NO_TRAFFIC, query=hits.query, window_s=window_s, reason="no token was looked up"
        )
    return Reading(
        Outcome.VALUE,
        value=(hits.value or 0.0) / queries.value,
        query=f"{hits.query} / {queries.query}",
        window_s=window_s,
        samples=int(queries.value),
        at_s=queries.at_s,
    )


def _latency(watched: Watched, signal: str, window_s: float) -> Latency:
    mean = watched.ask(signal, lambda s, n: s.mean(n, window_s, labels_of(signal, n)))
    quantiles = {
        q: watched.ask(
            signal,
            lambda s, n, q=q: s.quantile(n, q, window_s, labels_of(signal, n)),  # type: ignore[misc]
        )
        for q in QUANTILES
    }
    counts = watched.buckets(signal, window_s) if mean.ok else {}
    pairs = sorted(
        (float(le.replace("+Inf", "inf")), reading.value)
        for le, reading in counts.items()
        if reading.ok and reading.value is not None
    )
    return Latency(signal, mean, quantiles, tuple(pairs))


def _identity(watched: Watched) -> Identity:
    prefixes = {name.split(":", 1)[0] for name in watched.names if ":" in name}
    engine = next(
        (
            label
            for prefix, label in (("slotune", "slotune"), ("vllm", "vLLM"), ("sglang", "SGLang"))
            if prefix in prefixes
        ),
        "",
    )
    models = tuple(sorted(watched.breakdown("running", "model_name", None)))
    case = _with_settings(watched)
    return Identity(
        engine, tuple(model for model in models if model), case.cap(), case.pools_tokens()
    )


def _with_settings(watched: Watched) -> Case:
    """A case of the engines' settings alone, so that caps and pools add up as in the diagnosis."""
    names = frozenset({*INFOS, *(name for signal in SIZES for name in _names(signal))})
    source = watched.source.at_once(Wanted(names, watched.source.scrape_interval_s))
    found = replicas(source, watched.resolve("running"))
    asked = source if watched.reachable else None
    config, each = settings(asked, watched.resolve, found, KnownSettings({}, {}))
    status = watched.status
    told = Signals("", "", time.time(), 0.0, status, config=config, config_by_replica=each)
    return Case(told, DEFAULT)
