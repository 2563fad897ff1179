"""How a signal is described: its names per dialect, the kind of question, and how many samples it
takes before a node may call it critical.

Invariant: what fewer samples show can fire, as a warning that is possible; one request, error or
gap is never critical.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gauge_sum", "gauge_max", "rate", "rate_max", "increase", "mean", "quantile"]
"""gauge_sum: over engines; rate_max: of the parts by `by`, the one that grows fastest."""

Dialect = Literal["slotune", "vllm", "sglang"]
DIALECTS: tuple[Dialect, ...] = ("slotune", "vllm", "sglang")

MEAN_LEAST = 3
SHARE_LEAST = 20
WHY_LEAST = {
    "mean": "of two, one unusual request is half",
    "quantile": "1 / (1 − q): of fewer, the quantile is the greatest one seen",
    "share": "of fewer, a single error is more than the 5 % that are critical",
}


def quantile_least(q: float) -> int:
    """How many observations it takes until the quantile is another one than the greatest."""
    return math.ceil(round(1.0 / (1.0 - q), 6))


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """One signal. vllm also serves slotune, which exports vLLM's names.

    labels: of the series that count, only: besides, of those of one of the names. by: the labels
    that tell the parts of a rate_max apart. how_to_get: what an operator does to have the signal
    where it is missing. beside: a metric of an engine that exports this counter from its first
    event on: where that one is and this is not, nothing has been counted yet.
    """

    name: str
    unit: str
    kind: Kind
    vllm: tuple[str, ...]
    sglang: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    q: float | None = None
    how_to_get: str = ""
    only: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    by: str = ""
    beside: str = ""

    @property
    def min_samples(self) -> int:
        """Observations below which nothing is called critical; 0 for what is no histogram."""
        if self.kind == "quantile":
            return quantile_least(self.q or 0.5)
        return MEAN_LEAST if self.kind == "mean" else 0

    def names(self, dialect: str) -> tuple[str, ...]:
        return self.sglang if dialect == "sglang" else self.vllm

    def labels_of(self, name: str) -> dict[str, str]:
        return {**self.labels, **self.only.get(name, {})}


@dataclass(frozen=True, slots=True)
class BreakdownSpec:
    """A signal by the values of one label; windowed counters give their increase, gauges theirs.

    min_samples: of all values together, below which no share of them is called critical.
    """

    name: str
    unit: str
    by: str
    windowed: bool
    vllm: tuple[str, ...]
    sglang: tuple[str, ...] = ()
    how_to_get: str = ""
    min_samples: int = 0

    def names(self, dialect: str) -> tuple[str, ...]:
        return self.sglang if dialect == "sglang" else self.vllm
