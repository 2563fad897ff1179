"""What of a target's signals is told by replica: read where its series carry more than one.

Invariant: a replica is one engine. Where instances hold several engines (`engine`, `dp_rank`), each
of these is one, named "instance/engine".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from storage.sources.base import Labels, MetricSource, Outcome, Reading
from tuner.diagnosis.collect_trends import course, share_above_0
from tuner.diagnosis.registry import BREAKDOWNS, SPECS

LABELS = ("instance", "engine", "dp_rank")
"""What tells replicas apart."""

SILENT = "silent_by_replica"
"""The breakdown that tells at which share of the scrapes they run any."""

Named = Callable[[str], str | None]
"""The exported name of a signal, None where it is not exported."""

Replicas = Mapping[str, dict[str, str]]
"""The labels of each replica's series, by its name; empty with one replica."""

PEAKS = ("peak_flops", "peak_bytes")


def process_of(labels: Labels) -> dict[str, str]:
    """The labels of what an engine's process tells once for all its engines."""
    return {name: value for name, value in labels.items() if name == "instance"}


def replicas(source: MetricSource, running: str | None) -> Replicas:
    """Those that tell how many run there, now."""
    if running is None:
        return {}
    by = [label for label in LABELS if len(set(source.breakdown(running, label)) - {""}) >= 2]
    names = source.breakdown(running, ",".join(by)) if by else {}
    apart = len(by) - 1  # only an instance, which comes first, may have a "/" of its own
    return {
        name: dict(zip(by, name.rsplit("/", apart), strict=True))
        for name in names
        if name.strip("/")
    }


def by_replica(
    source: MetricSource, window_s: float, at_s: float, named: Named, found: Replicas
) -> dict[str, dict[str, Reading]]:
    """running, waiting, KV, tokens and TTFT as breakdowns, and of those that run requests and give
    no token, at which share of the scrapes they ran any; empty with one replica."""
    running = named("running")
    if running is None or not found:
        return {}
    by = ",".join(next(iter(found.values())))
    now = source.breakdown(running, by)
    parts = {"running_by_replica": {name: now[name] for name in found if name in now}}
    parts |= _others(source, window_s, named, by) | _devices(source, window_s, named, found)
    if silent := _silent(parts):
        courses = {
            name: course(source, running, "sum", window_s, at_s, labels=found[name])
            for name in silent
        }
        parts[SILENT] = {k: share_above_0(gauge) for k, gauge in courses.items() if gauge.points}
    return parts


def _silent(found: Mapping[str, Mapping[str, Reading]]) -> list[str]:
    """Those that run requests now and gave no token in the window."""
    tokens = found.get("tokens_by_replica", {})
    running = [name for name, now in found["running_by_replica"].items() if now.value]
    return [name for name in running if name in tokens and tokens[name].value == 0]


def _others(
    source: MetricSource, window_s: float, named: Named, by: str
) -> dict[str, dict[str, Reading]]:
    found = {}
    for signal in ("waiting", "kv_usage"):
        if name := named(signal):
            found[f"{signal}_by_replica"] = dict(source.breakdown(name, by))
    if tokens := _tokens(source, window_s, named, by):
        found["tokens_by_replica"] = tokens
    if ttft := named("ttft"):
        sums, counts = (source.breakdown(f"{ttft}_{end}", by, window_s) for end in ("sum", "count"))
        found["ttft_by_replica"] = {
            replica: _mean(sums[replica], count)
            for replica, count in counts.items()
            if replica in sums
        }
    return found


def _devices(
    source: MetricSource, window_s: float, named: Named, found: Replicas
) -> dict[str, dict[str, Reading]]:
    """Each one's peaks, and what its steps took and did, as `replica/kind`; of what is told."""
    by, parts = ",".join(next(iter(found.values()))), {}
    for spec in SPECS:
        if spec.name in PEAKS and (name := named(spec.name)):
            parts[f"{spec.name}_by_replica"] = {
                one: _gauge(source, name, labels, spec.labels_of(name))
                for one, labels in found.items()
            }
    for split in BREAKDOWNS:
        if split.by == "kind" and (name := named(split.name)):
            counted = source.breakdown(name, f"{by},{split.by}", window_s)
            parts[f"{split.name}_by_replica"] = dict(counted)
    return parts


def _gauge(source: MetricSource, name: str, labels: Labels, only: Labels) -> Reading:
    """Of one engine, or where that is told once, of its process."""
    own = source.gauge(name, {**labels, **only})
    return own if own.ok else source.gauge(name, {**process_of(labels), **only})


def _mean(total: Reading, count: Reading) -> Reading:
    """A histogram's mean of its sum and its count; samples are the observations."""
    query = f"{total.query} / {count.query}"
    if not total.ok or not count.ok:
        return replace(count if total.ok else total, query=query)
    if not count.value:
        reason = "nothing was observed"
        return Reading(Outcome.NO_TRAFFIC, query=query, window_s=count.window_s, reason=reason)
    mean = (total.value or 0.0) / count.value
    return replace(total, value=mean, query=query, samples=round(count.value))


def _tokens(source: MetricSource, window_s: float, named: Named, by: str) -> dict[str, Reading]:
    """Prompt and answer tokens together: the work a replica did."""
    found = [(spec, named(spec.name)) for spec in SPECS if spec.name in ("prompted", "generated")]
    parts: dict[str, Mapping[str, Reading]] = {
        spec.name: source.breakdown(name, by, window_s, spec.labels_of(name))
        for spec, name in found
        if name
    }
    if len(parts) < 2:
        return {}
    prompted, generated = parts["prompted"], parts["generated"]
    return {
        replica: _added(reading, generated[replica])
        for replica, reading in prompted.items()
        if replica in generated and reading.ok and generated[replica].ok
    }


def _added(one: Reading, other: Reading) -> Reading:
    value = (one.value or 0.0) + (other.value or 0.0)
    return replace(one, value=value, query=f"{one.query} + {other.query}")
