"""One /metrics answer, parsed: text format 0.0.4 and OpenMetrics, values only.

A sample's identity is its text up to the value (`name{a="b"}`): a server writes it the same way at
every scrape, so that labels are parsed once per series and a scrape costs one dictionary look-up
per line. Time stamps and exemplars in the text are skipped: the time of the scrape counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from storage.sources.base import Agg, Labels

STARTED = "process_start_time_seconds"
"""The gauge that tells when a target's process began (Unix seconds)."""

_SAMPLE = re.compile(
    r'([a-zA-Z_:][\w:]*\s*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?)\s*(\S+)(?:\s.*)?$'
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


class NotAnExpositionError(ValueError):
    """The text is something else than metrics (an HTML page, JSON, a truncated answer)."""


@dataclass(frozen=True, slots=True)
class SeriesId:
    name: str
    labels: dict[str, str]

    def carries(self, wanted: Labels | None) -> bool:
        return not wanted or all(self.labels.get(k, "") == v for k, v in wanted.items())


@dataclass(frozen=True, slots=True)
class Exposition:
    """values by sample text; at_s is when it was asked for (Unix seconds)."""

    at_s: float
    values: dict[str, float]

    def names(self) -> frozenset[str]:
        return frozenset(series_id(key).name for key in self.values)

    def find(self, name: str, labels: Labels | None = None) -> list[tuple[SeriesId, float]]:
        """All series of a name that carry the labels, as ([labels], value)."""
        found = []
        for key, value in self.values.items():
            if key.startswith(name):
                series = series_id(key)
                if series.name == name and series.carries(labels):
                    found.append((series, value))
        return found

    def value(self, name: str, labels: Labels | None = None, agg: Agg = "max") -> float | None:
        """The series of a name folded into one figure; None when it is not exported."""
        return fold((value for _, value in self.find(name, labels)), agg)

    def total(self, name: str, labels: Labels | None = None) -> float | None:
        return self.value(name, labels, "sum")

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        found = self.find(name, labels)
        return dict(found[0][0].labels) if found else None


def parse_exposition(text: str, at_s: float) -> Exposition:
    """Raises NotAnExpositionError when a line is no sample, naming the line."""
    values: dict[str, float] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line[0] == "#":
            continue
        try:
            key, value = _fast_sample(line)
        except ValueError:
            if not line.strip():
                continue
            key, value = _careful_sample(line, number)
        values[key] = value
    return Exposition(at_s, values)


def _fast_sample(line: str) -> tuple[str, float]:
    """The common form: name or name{…}, one blank, the value. ValueError for any other."""
    key, _, value = line.rpartition(" ")
    if not key or (key[-1] != "}" and ("{" in key or " " in key)) or " # " in key:
        raise ValueError
    return key, float(value)


def _careful_sample(line: str, number: int) -> tuple[str, float]:
    match = _SAMPLE.match(line.strip())
    if match is None:
        raise NotAnExpositionError(f"line {number} is not a metric: {line.strip()[:60]!r}")
    try:
        return match[1].strip(), float(match[2])
    except ValueError:
        raise NotAnExpositionError(f"line {number} has no number: {line.strip()[:60]!r}") from None


@lru_cache(maxsize=65536)
def series_id(key: str) -> SeriesId:
    """Name and labels of a sample's text; the result is shared and must not be changed."""
    name, brace, rest = key.partition("{")
    if not brace:
        return SeriesId(name.strip(), {})
    return SeriesId(name.strip(), {k: _unescaped(v) for k, v in _LABEL.findall(rest)})


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], value)


def fold(values: Iterable[float], agg: Agg) -> float | None:
    """As PromQL: max and min pass over NaN unless there is nothing else; None for no values."""
    found = list(values)
    if not found:
        return None
    if agg == "sum":
        return sum(found)
    numbers = [value for value in found if value == value]
    return (max if agg == "max" else min)(numbers) if numbers else found[0]


def spellings(name: str) -> Iterator[str]:
    """The names a counter may have: older exporters leave `_total` out, newer ones add it."""
    yield name
    yield name.removesuffix("_total") if name.endswith("_total") else f"{name}_total"
