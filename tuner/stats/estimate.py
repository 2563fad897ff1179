"""A measured figure that says what it is: value, interval, samples, unit, method."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tuner.units import count_text, digits

CONFIDENCE = 0.95
"""Of every interval and verdict that names no other."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """value with its 95 % interval [low, high] from n samples; NaN where nothing was measured.

    An infinite value is real: a failed request's latency. reason says why a value is missing.
    effective_n: how many independent samples the n are worth; counted_n: how many of these the
    interval counts on, as their worth is itself an estimate. None where the interval is not made of
    counted samples.
    """

    value: float
    low: float
    high: float
    n: int
    unit: str
    method: str
    reason: str = ""
    effective_n: float | None = None
    counted_n: int | None = None

    @property
    def measured(self) -> bool:
        return not math.isnan(self.value)

    @classmethod
    def missing(cls, unit: str, reason: str) -> Estimate:
        return cls(math.nan, math.nan, math.nan, 0, unit, "not measured", reason)

    @property
    def worth_text(self) -> str:
        """`, 16 of 25.3 effective samples counted`; "" where all n count."""
        if self.counted_n is None or self.counted_n >= self.n:
            return ""
        if self.effective_n is None or math.floor(self.effective_n) == self.counted_n:
            return f", {count_text(self.counted_n, 'effective sample')}"
        return f", {self.counted_n:,} of {digits(self.effective_n)} effective samples counted"

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: infinities as "inf", NaN as null."""
        values = asdict(self)
        for key in ("value", "low", "high"):
            number = values[key]
            if math.isnan(number):
                values[key] = None
            elif math.isinf(number):
                values[key] = "inf" if number > 0 else "-inf"
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Estimate:
        numbers = {
            key: math.nan if values[key] is None else float(values[key])
            for key in ("value", "low", "high")
        }
        return cls(**{**values, **numbers})
