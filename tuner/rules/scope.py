"""Counters and sums of counters as PromQL: which series count, and how they are grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.sources import promql
from tuner.budget.counters import Counter


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series count and how they are grouped: matchers by label, labels kept apart."""

    labels: Mapping[str, str]
    by: tuple[str, ...] = ("model_name",)

    def series(self, name: str, extra: str = "") -> str:
        return promql.selector(name, self.labels, extra=extra)

    def rate(self, counter: Counter, window: str) -> str:
        """Per second, summed over all but the labels kept."""
        return f"{self._sum} (rate({self.series(counter.name, matcher(counter))}[{window}]))"

    def gauge(self, name: str) -> str:
        return f"{self._sum} ({self.series(name)})"

    def sum_of(self, terms: Sequence[tuple[int, Counter]], window: str, *, known: Counter) -> str:
        """Per second. known: a counter that is always there, so that an absent one is 0."""
        text = ""
        for sign, counter in terms:
            part = self.rate(counter, window)
            if counter.sparse:
                part = f"({part} or 0 * {self.rate(known, window)})"
            text += part if not text else f"\n{'+' if sign > 0 else '-'} {part}"
        return text

    @property
    def _sum(self) -> str:
        return f"sum by ({', '.join(self.by)})" if self.by else "sum"


def matcher(counter: Counter) -> str:
    """Of the label that tells a counter's part; "" where all of it counts."""
    if not counter.by:
        return ""
    if len(counter.values) == 1:
        return f'{counter.by}="{promql.escaped(counter.values[0])}"'
    pattern = "|".join(value.replace(".", "\\\\.") for value in counter.values)
    return f'{counter.by}=~"{pattern}"'
