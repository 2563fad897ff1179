"""How a budget of minutes or trials becomes measurements: how many, and how long each.

A time budget covers everything: calibration, two baselines, search, confirmation. Windows are
sized so that about SLOTS measurements fit; with little time there are fewer, never shorter than a
window that can tell anything.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from tuner.errors import UserError
from tuner.units import parse_duration_s

SLOTS = 22
MIN_WINDOW_S, MAX_WINDOW_S = 6.0, 60.0
DEFAULT_WINDOW_S = 15.0
DEFAULT_WARMUP_S = 3.0
DRAIN_S = 1.5
"""About what the end of a measurement takes: last answers, scraping, storing."""

BASELINES = 2
MIN_TRIALS = 5
_TRIALS = re.compile(r"\s*(\d+)\s*(?:trials?|measurements?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """Exactly one of total_s and trials is set."""

    text: str
    total_s: float | None = None
    trials: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """window_s and warmup_s of each measurement; measurements for the search and the rounds of
    the confirmation (each measures the baseline and up to two candidates)."""

    window_s: float
    warmup_s: float
    search: int
    confirm_rounds: int
    finalists: int

    @property
    def slot_s(self) -> float:
        """About what one measurement takes."""
        return self.window_s + self.warmup_s + DRAIN_S

    @property
    def confirm_slots(self) -> int:
        return self.confirm_rounds * (1 + self.finalists)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_budget(text: str) -> Budget:
    """`5m`, `90s`, `20 trials`. Raises UserError."""
    if found := _TRIALS.match(text):
        trials = int(found.group(1))
        if trials < MIN_TRIALS:
            raise UserError(
                f"--budget {text!r}: at least {MIN_TRIALS} trials are needed (two baselines, one "
                "candidate, one confirming pair)"
            )
        return Budget(text.strip(), trials=trials)
    try:
        total_s = parse_duration_s(text, "--budget")
    except UserError:
        raise UserError(
            f'--budget {text!r} is neither a time nor a count; write "5m", "90s" or "20 trials"'
        ) from None
    return Budget(text.strip(), total_s=total_s)


def plan(
    budget: Budget,
    spent_s: float = 0.0,
    *,
    window_s: float | None = None,
    warmup_s: float | None = None,
) -> Plan:
    """Split what is left after spent_s; window_s and warmup_s are kept where given."""
    warmup = DEFAULT_WARMUP_S if warmup_s is None else warmup_s
    if budget.total_s is None:
        return _split(budget.trials or MIN_TRIALS, window_s or DEFAULT_WINDOW_S, warmup)
    left_s = max(0.0, budget.total_s - spent_s)
    if window_s is None:
        fitting_s = left_s / SLOTS - warmup - DRAIN_S
        window_s = min(MAX_WINDOW_S, max(MIN_WINDOW_S, fitting_s))
    slots = int(left_s / (window_s + warmup + DRAIN_S))
    return _split(max(MIN_TRIALS, slots), window_s, warmup)


def _split(slots: int, window_s: float, warmup_s: float) -> Plan:
    """Two baselines; about 42 % for the confirmation; the rest for the search."""
    left = slots - BASELINES
    finalists = 2 if slots >= 14 else 1
    rounds = max(1, min(5, round(0.42 * left / (1 + finalists))))
    search = left - rounds * (1 + finalists)
    return Plan(window_s, warmup_s, search, rounds, finalists)
