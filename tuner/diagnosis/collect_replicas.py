"""What of a target's signals is told by replica: read where its series carry more than one.

Invariant: a replica is one engine. Where instances hold several engines (`engine`, `dp_rank`), each
of these is one, named "instance/engine".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from storage.sources.base import MetricSource, Outcome, Reading
from tuner.diagnosis.collect_trends import course, share_above_0
from tuner.diagnosis.registry import SPECS

LABELS = ("instance", "engine", "dp_rank")
"""What tells replicas apart."""

SILENT = "silent_by_replica"
"""The breakdown that tells at which share of the scrapes they run any."""

Named = Callable[[str], str | None]
"""The exported name of a signal, None where it is not exported."""


def by_replica(
    source: MetricSource, window_s: float, at_s: float, named: Named
) -> dict[str, dict[str, Reading]]:
    """running, waiting, KV, tokens and TTFT as breakdowns, and of those that run requests and give
    no token, at which share of the scrapes they ran any; empty with one replica."""
    running = named("running")
    if running is None:
        return {}
    by = ",".join(
        label for label in LABELS if len(set(source.breakdown(running, label)) - {""}) >= 2
    )
    if not by:
        return {}
    parts = {k: r for k, r in source.breakdown(running, by).items() if k.strip("/")}
    found = {"running_by_replica": parts} | _others(source, window_s, named, by)
    if silent := _silent(found):
        courses = {
            name: course(source, running, "sum", window_s, at_s, labels=labels)
            for name in silent if (labels := _labels(by, name))
        }  # fmt: skip
        found[SILENT] = {k: share_above_0(gauge) for k, gauge in courses.items() if gauge.points}
    return found


def _silent(found: Mapping[str, Mapping[str, Reading]]) -> list[str]:
    """Those that run requests now and gave no token in the window."""
    tokens = found.get("tokens_by_replica", {})
    running = [name for name, now in found["running_by_replica"].items() if now.value]
    return [name for name in running if name in tokens and tokens[name].value == 0]


def _labels(by: str, replica: str) -> dict[str, str]:
    """The labels of its series; {} where its name does not tell them."""
    labels, values = by.split(","), replica.split("/")
    return dict(zip(labels, values, strict=True)) if len(labels) == len(values) else {}


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
