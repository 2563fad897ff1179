"""The settings of a target's engines: what each exports, what its server says of itself, and what a
person tells, the later over the earlier; by our knobs' names.

Invariant: a setting in which engines differ is that of none of them alone. It stands with each of
them, and not among those that are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.knobs import KNOB_ALIASES
from storage.sources.base import Labels, MetricSource
from tuner.diagnosis.collect_replicas import Named, Replicas, process_of

INFOS = ("vllm:cache_config_info", "slotune:scheduler_config_info")

CONFIG_NAMES = KNOB_ALIASES | {
    "num_gpu_blocks": "num_kv_blocks",
    "device_type": "device",
}
"""What engines call the tree's settings."""

Settings = dict[str, str]


@dataclass(frozen=True, slots=True)
class KnownSettings:
    """What is known beside the metrics. everywhere: of all engines; by_instance: what each server
    says of itself, {} where it does not, by the `instance` of its series."""

    everywhere: Mapping[str, Any]
    by_instance: Mapping[str, Mapping[str, Any]]

    def of(self, labels: Labels) -> Settings:
        """Of the engine whose series carry these labels."""
        instance = labels.get("instance")
        if instance is None or len(self.by_instance) < 2:
            return self.alike()
        return said(self.by_instance.get(instance, {})) | said(self.everywhere)

    def alike(self) -> Settings:
        return alike(map(said, self.by_instance.values())) | said(self.everywhere)


def settings(
    source: MetricSource | None, named: Named, found: Replicas, known: KnownSettings
) -> tuple[Settings, dict[str, Settings]]:
    """(those of all engines, each replica's; {} with one replica). source: None where nothing is
    to be asked of it, since it does not answer."""
    if source is None:
        return known.alike(), {}
    if not found:
        return exported(source, named, {}) | known.alike(), {}
    each = {
        name: exported(source, named, labels) | known.of(labels) for name, labels in found.items()
    }
    return alike(each.values()), each


def alike(each: Iterable[Settings]) -> Settings:
    """What those that tell a setting tell alike."""
    seen: dict[str, set[str]] = {}
    for one in each:
        for name, value in one.items():
            seen.setdefault(name, set()).add(value)
    return {name: next(iter(values)) for name, values in seen.items() if len(values) == 1}


def said(info: Mapping[str, Any]) -> Settings:
    """What a server says of itself: plain facts, and knobs with their bounds."""
    found = {k: str(v) for k, v in info.items() if isinstance(v, (str, int, float, bool))}
    for knob, facts in (info.get("knobs") or {}).items():
        found[knob] = str(facts["value"])
        found[f"{knob}_high"] = str(facts["high"])
    return _ours(found)


def exported(source: MetricSource, named: Named, labels: Labels) -> Settings:
    """What the engine of these labels exports, or where that is told once, its process."""
    process = process_of(labels)
    found = _pool(source, named, labels)
    for info in INFOS:
        own = source.info(info, labels)
        if not own and process != labels:
            own = source.info(info, process)
        found |= own or {}
    return _ours(found)


def _pool(source: MetricSource, named: Named, labels: Labels) -> Settings:
    """The size of one engine's KV pool where gauges tell it (SGLang)."""
    pool, page = named("kv_pool_tokens"), named("kv_page_tokens")
    tokens = source.gauge(pool, labels).value if pool else None
    size = source.gauge(page, labels).value if page else None
    if not tokens or not size:
        return {}
    return {"num_kv_blocks": f"{tokens // size:.0f}", "block_size": f"{size:.0f}"}


def _ours(found: Settings) -> Settings:
    return {CONFIG_NAMES.get(k, k): v for k, v in found.items() if v != "None"}
