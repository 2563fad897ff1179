"""Counters, gauges and histograms cheap enough to update per token, and their text form.

One thread writes a cell, any thread reads it. A histogram's count is the sum of its buckets, so a
reader never sees the two disagree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.metrics.names import MetricSpec

Labels = Mapping[str, str]


class Value:
    """A counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """Counts per bucket; `bounds` are the inclusive upper bounds without +Inf."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Summary:
    """Count and sum only."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.count += 1
        self.total += value


Cell = Value | Histogram | Summary


@dataclass
class Family:
    """All series of one metric: label text → cell."""

    spec: MetricSpec
    bounds: tuple[float, ...] = ()
    series: dict[str, Cell] = field(default_factory=dict)

    def cell(self, labels: Labels) -> Cell:
        """The series with these labels, created at zero."""
        key = label_text(labels)
        found = self.series.get(key)
        if found is None:
            found = self.series[key] = self._new()
        return found

    def _new(self) -> Cell:
        if self.spec.kind == "histogram":
            return Histogram(self.bounds)
        return Summary() if self.spec.kind == "summary" else Value()

    def lines(self) -> Iterable[str]:
        """The exposition of the family (text format 0.0.4), HELP and TYPE first."""
        spec = self.spec
        name = f"{spec.name}_total" if spec.kind == "counter" else spec.name
        yield f"# HELP {name} {_escape_help(spec.help)}\n# TYPE {name} {spec.kind}\n"
        for labels, cell in list(self.series.items()):
            if isinstance(cell, Value):
                yield f"{name}{_braced(labels)} {cell.value!r}\n"
            elif isinstance(cell, Summary):
                yield f"{name}_count{_braced(labels)} {float(cell.count)!r}\n"
                yield f"{name}_sum{_braced(labels)} {float(cell.total)!r}\n"
            else:
                yield _histogram_text(name, labels, cell)


def _histogram_text(name: str, labels: str, cell: Histogram) -> str:
    lines = []
    running = 0
    lead = f"{labels}," if labels else ""
    for bound, count in zip((*map(repr, cell.bounds), "+Inf"), list(cell.counts), strict=True):
        running += count
        lines.append(f'{name}_bucket{{{lead}le="{bound}"}} {float(running)!r}\n')
    lines.append(f"{name}_count{_braced(labels)} {float(running)!r}\n")
    lines.append(f"{name}_sum{_braced(labels)} {float(cell.total)!r}\n")
    return "".join(lines)


def label_text(labels: Labels) -> str:
    """`a="x",b="y"` in sorted order, values escaped."""
    return ",".join(f'{name}="{_escape(labels[name])}"' for name in sorted(labels))


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
