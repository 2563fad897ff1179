"""Reads an exposition with Prometheus' own parser into plain values."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families


@dataclass
class Page:
    """types by family name, samples as (name, labels) → value, label names per sample name."""

    types: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)
    label_names: dict[str, set[frozenset[str]]] = field(default_factory=lambda: defaultdict(set))
    label_values: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name that carries these labels (among others)."""
        wanted = set(labels.items())
        found = [v for (n, have), v in self.samples.items() if n == name and wanted <= have]
        assert len(found) == 1, f"{name}{labels}: {len(found)} series"
        return found[0]

    def total(self, name: str) -> float:
        return sum(value for (n, _), value in self.samples.items() if n == name)


def read(text: str) -> Page:
    page = Page()
    for family in text_string_to_metric_families(text):
        page.types[family.name] = family.type
        for sample in family.samples:
            page.samples[sample.name, frozenset(sample.labels.items())] = sample.value
            page.label_names[sample.name].add(frozenset(sample.labels))
            for key, value in sample.labels.items():
                page.label_values[sample.name, key].add(value)
    return page
