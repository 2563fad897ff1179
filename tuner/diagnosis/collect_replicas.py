"""What of a target's signals is told by replica: read where its series carry more than one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from storage.sources.base import MetricSource, Reading
from tuner.diagnosis.registry import SPECS

LABELS = ("instance", "engine", "dp_rank")
"""What tells replicas apart, in the order it is looked for."""

Named = Callable[[str], str | None]
"""The exported name of a signal, None where it is not exported."""


def by_replica(
    source: MetricSource, window_s: float, named: Named
) -> dict[str, dict[str, Reading]]:
    """running, waiting, KV, tokens and TTFT as breakdowns; empty with one replica."""
    running = named("running")
    if running is None:
        return {}
    for label in LABELS:
        parts = {k: r for k, r in source.breakdown(running, label).items() if k}
        if len(parts) >= 2:
            found = {"running_by_replica": parts}
            return found | _others(source, window_s, named, label, parts)
    return {}


def _others(
    source: MetricSource, window_s: float, named: Named, label: str, running: dict[str, Reading]
) -> dict[str, dict[str, Reading]]:
    found = {}
    for signal in ("waiting", "kv_usage"):
        if name := named(signal):
            found[f"{signal}_by_replica"] = dict(source.breakdown(name, label))
    if tokens := _tokens(source, window_s, named, label):
        found["tokens_by_replica"] = tokens
    if ttft := named("ttft"):
        found["ttft_by_replica"] = {
            replica: source.mean(ttft, window_s, {label: replica}) for replica in running
        }
    return found


def _tokens(source: MetricSource, window_s: float, named: Named, label: str) -> dict[str, Reading]:
    """Prompt and answer tokens together: the work a replica did."""
    found = [(spec, named(spec.name)) for spec in SPECS if spec.name in ("prompted", "generated")]
    parts = {
        spec.name: source.breakdown(name, label, window_s, spec.labels_of(name))
        for spec, name in found
        if name
    }
    if len(parts) < 2:
        return {}
    prompted, generated = parts["prompted"], parts["generated"]
    return {
        replica: replace(reading, value=(reading.value or 0.0) + (generated[replica].value or 0.0))
        for replica, reading in prompted.items()
        if replica in generated and reading.ok and generated[replica].ok
    }
