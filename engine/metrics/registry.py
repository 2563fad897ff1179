"""Families by name, and the whole /metrics page: ours first, then process_* and python_*.

Invariant: a series with known label values exists, at zero, from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from engine.metrics.buckets import LENGTHS, length_buckets
from engine.metrics.cells import Family, Histogram, Summary, Value
from engine.metrics.names import INFO_HELP, MetricSpec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricRegistry:
    """All metrics of one engine."""

    def __init__(self, *, model_name: str, max_model_len: int, engine: str = "0") -> None:
        self._identity = {"engine": engine, "model_name": model_name}
        self._lengths = length_buckets(max_model_len)
        self._families: dict[str, Family] = {}
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def declare(self, specs: Iterable[MetricSpec]) -> None:
        """Create the families, and the series whose label values are known."""
        for spec in specs:
            bounds = self._lengths if spec.buckets is LENGTHS else spec.buckets or ()
            family = self._families[spec.name] = Family(spec, bounds)
            if spec.label is None and spec.identity:
                family.cell(self._labels(spec))
            for value in spec.values:
                family.cell(self._labels(spec) | {str(spec.label): value})

    def value(self, name: str, label: str | None = None) -> Value:
        """The counter or gauge `name` (with its one extra label's value)."""
        cell = self._cell(name, label)
        assert isinstance(cell, Value), name
        return cell

    def histogram(self, name: str, label: str | None = None) -> Histogram:
        cell = self._cell(name, label)
        assert isinstance(cell, Histogram), name
        return cell

    def summary(self, name: str, labels: Mapping[str, str]) -> Summary:
        cell = self._families[name].cell(labels)
        assert isinstance(cell, Summary), name
        return cell

    def labelled(self, name: str, labels: Mapping[str, str]) -> Value | Histogram | Summary:
        """A series with free labels (the HTTP metrics)."""
        return self._families[name].cell(labels)

    def info(self, name: str, labels: Mapping[str, object]) -> None:
        """Set an information gauge: one series of value 1; earlier labels vanish."""
        spec = MetricSpec(name, "gauge", INFO_HELP[name])
        family = Family(spec)
        cell = family.cell(
            {"engine": self._identity["engine"]}
            | {key: str(value) for key, value in labels.items()}
        )
        assert isinstance(cell, Value)
        cell.set(1.0)
        self._families[name] = family

    def exposition(self) -> bytes:
        """The page in Prometheus' text format 0.0.4."""
        own = "".join(line for family in list(self._families.values()) for line in family.lines())
        process: bytes = generate_latest(self._process)
        return own.encode() + process

    def _cell(self, name: str, label: str | None) -> Value | Histogram | Summary:
        family = self._families[name]
        labels = self._labels(family.spec)
        if label is not None:
            labels[str(family.spec.label)] = label
        return family.cell(labels)

    def _labels(self, spec: MetricSpec) -> dict[str, str]:
        return {name: self._identity[name] for name in spec.identity}
