"""What is maximised or minimised: figures of a measurement's summary, or the capacity."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.errors import UserError
from tuner.slo.grammar import parse_slos
from tuner.slo.names import BY_ANY_NAME
from tuner.stats import Estimate

CAPACITY = "capacity"
"""The highest load that meets every SLO: no figure of one measurement, it is searched for."""

MOST_OBJECTIVES = 3


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

    def worst(self, values: Sequence[float]) -> float:
        return min(values) if self.higher_is_better else max(values)


def parse_objectives(
    maximize: Sequence[str],
    minimize: Sequence[str],
    *,
    price_per_hour: float | None = None,
    options: tuple[str, str] = ("--maximize", "--minimize"),
) -> tuple[Objective, ...]:
    """From the texts of both options; the first one decides. Raises UserError."""
    found = [Objective(_key(text, options[0]), "maximize") for text in maximize]
    found += [Objective(_key(text, options[1]), "minimize") for text in minimize]
    keys = [objective.key for objective in found]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise UserError(f"{twice[0]} is an objective twice; name it once")
    if len(found) > MOST_OBJECTIVES:
        raise UserError(
            f"{len(found)} objectives are too many for a front to be found; give at most "
            f"{MOST_OBJECTIVES}, and bound the others with --slo"
        )
    if CAPACITY in keys:
        _check_capacity(found)
    if "cost_per_mtok" in keys and price_per_hour is None:
        raise UserError("cost_per_mtok needs --price-per-hour: what the server costs, in $")
    return tuple(found) or (Objective(),)


def objective_from_text(text: str) -> Objective:
    """The inverse of str(objective)."""
    direction, _, key = text.strip().partition(" ")
    return Objective(key, "minimize" if direction == "minimize" else "maximize")


def _check_capacity(found: Sequence[Objective]) -> None:
    if len(found) > 1:
        raise UserError("capacity is an objective alone: bound other figures with --slo")
    if not found[0].higher_is_better:
        raise UserError("--minimize capacity: capacity is the load that is served; maximise it")


def _key(text: str, flag: str) -> str:
    text = text.strip().lower()
    if text == CAPACITY:
        return CAPACITY
    metric = BY_ANY_NAME.get(text)
    if metric is not None and not metric.per_request:
        if metric.name == "accuracy":
            raise UserError(f"{flag} {text}: is not measured here; use output_tps or goodput")
        return metric.name
    if metric is not None:
        raise UserError(f"{flag} {text}: name a statistic, e.g. {metric.name}_p95")
    try:
        clause = parse_slos([f"{text}<1s"]).clauses[0]
    except UserError:
        known = [name for name, m in BY_ANY_NAME.items() if not m.per_request]
        known += ["ttft_p95", CAPACITY]
        close = difflib.get_close_matches(text, known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else "e.g. output_tps, goodput, ttft_p95"
        raise UserError(f"{flag} {text}: unknown figure; {hint}") from None
    return clause.key
