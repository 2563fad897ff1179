"""What is maximised or minimised: one figure of a measurement's summary."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Literal

from tuner.errors import UserError
from tuner.slo.grammar import parse_slos
from tuner.slo.names import BY_ANY_NAME
from tuner.stats import Estimate


@dataclass(frozen=True, slots=True)
class Objective:
    """key is a summary figure: output_tps, goodput, ttft_p95…"""

    key: str = "output_tps"
    direction: Literal["maximize", "minimize"] = "maximize"

    def __str__(self) -> str:
        return f"{self.direction} {self.key}"

    @property
    def higher_is_better(self) -> bool:
        return self.direction == "maximize"

    def value(self, summary: dict[str, Estimate]) -> float | None:
        """The figure, or None where there is none: no result is never a score."""
        estimate = summary.get(self.key)
        if estimate is None or not math.isfinite(estimate.value):
            return None
        return estimate.value

    def rank(self, summary: dict[str, Estimate]) -> float:
        """A sort key, best first; last of all where there is no figure."""
        value = self.value(summary)
        if value is None:
            return math.inf
        return -value if self.higher_is_better else value

    def better(self, a: float, b: float) -> bool:
        return a > b if self.higher_is_better else a < b


def parse_objective(maximize: str | None, minimize: str | None) -> Objective:
    """From --maximize/--minimize. Raises UserError."""
    text = maximize or minimize or "output_tps"
    key = _key(text.strip().lower(), "--minimize" if minimize else "--maximize")
    return Objective(key, "minimize" if minimize else "maximize")


def _key(text: str, flag: str) -> str:
    metric = BY_ANY_NAME.get(text)
    if metric is not None and not metric.per_request:
        if metric.name in ("cost_per_mtok", "accuracy"):
            raise UserError(f"{flag} {text}: is not measured here; use output_tps or goodput")
        return metric.name
    if metric is not None:
        raise UserError(f"{flag} {text}: name a statistic, e.g. {metric.name}_p95")
    try:
        clause = parse_slos([f"{text}<1s"]).clauses[0]
    except UserError:
        known = [name for name, m in BY_ANY_NAME.items() if not m.per_request] + ["ttft_p95"]
        close = difflib.get_close_matches(text, known, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else "e.g. output_tps, goodput, ttft_p95"
        raise UserError(f"{flag} {text}: unknown figure; {hint}") from None
    return clause.key
