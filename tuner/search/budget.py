"""How a budget of minutes or trials becomes trials: how many, and how long each.

A time budget covers everything: calibration, starts of the server, two baselines, search,
confirmation. Windows are sized so that a certain number of trials fits; with little time there are
fewer, never shorter than a window that can tell anything. The confirmation's share is planned
first, because few runs prove nothing.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from tuner.errors import UserError
from tuner.printable import shortened
from tuner.units import is_duration, parse_duration_s

SLOTS, FEW_SLOTS = 28, 22
"""Trials that windows are sized for: enough to confirm three finalists, or but one of them where
the windows would else be shorter than USUAL_WINDOW_S."""

USUAL_WINDOW_S = 9.0
MIN_WINDOW_S, MAX_WINDOW_S = 6.0, 60.0
DEFAULT_WINDOW_S = 15.0
DEFAULT_WARMUP_S = 3.0
DRAIN_S = 1.5
"""About what the end of a measurement takes: last answers, scraping, storing."""

BASELINES = 2
MIN_TRIALS = 5
MAX_TRIAL_DIGITS = 9
"""Of a count of trials: no study has a billion."""

CONFIRM_SHARE = 0.56
"""Of what the baselines leave; what the search saves by ending trials early comes on top."""

CONFIRM_PLANS = (
    (3, 8), (3, 5), (2, 8), (2, 5), (1, 5), (2, 3), (1, 3), (2, 2), (1, 2),
)  # fmt: skip
"""(finalists, rounds), best first."""

ALL_FINALISTS = 2
"""Rounds that all finalists take part in, up to the first look; the best one goes on alone."""

_TRIALS = re.compile(r"\s*0*(\d+)\s*(?:trials?|measurements?)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """Exactly one of total_s and trials is set."""

    text: str
    total_s: float | None = None
    trials: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """window_s and warmup_s of each measurement; trials for the search, rounds of the confirmation
    and how many finalists it starts with. loads: measurements of one trial. change_s: what putting
    other settings in force takes, a restart where they are not live."""

    window_s: float
    warmup_s: float
    search: int
    confirm_rounds: int
    finalists: int
    loads: int = 1
    change_s: float = 0.0

    @property
    def slot_s(self) -> float:
        """About what one trial takes."""
        return self.loads * (self.window_s + self.warmup_s + DRAIN_S) + self.change_s

    @property
    def baselines_s(self) -> float:
        """About what the baselines take, on one start."""
        return BASELINES * (self.slot_s - self.change_s) + self.change_s

    @property
    def confirm_slots(self) -> int:
        return _confirm_slots(self.finalists, self.confirm_rounds)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_budget(text: str) -> Budget:
    """`5m`, `90s`, `20 trials`. Raises UserError."""
    if found := _TRIALS.match(text):
        if len(found.group(1)) > MAX_TRIAL_DIGITS:
            raise UserError(
                f"--budget {shortened(text)!r}: no study has so many trials; write for "
                'example "200 trials"'
            )
        trials = int(found.group(1))
        if trials < MIN_TRIALS:
            raise UserError(
                f"--budget {shortened(text)!r}: at least {MIN_TRIALS} trials are needed (two "
                "baselines, one candidate, one confirming pair)"
            )
        return Budget(text.strip(), trials=trials)
    if not is_duration(text):
        raise UserError(
            f"--budget {shortened(text)!r} is neither a time nor a count; "
            'write "5m", "90s" or "20 trials"'
        )
    return Budget(text.strip(), total_s=parse_duration_s(text, "--budget"))


def plan(
    budget: Budget,
    spent_s: float = 0.0,
    *,
    window_s: float | None = None,
    warmup_s: float | None = None,
    loads: int = 1,
    change_s: float = 0.0,
) -> Plan:
    """Split what is left after spent_s, the start for the baselines included; window_s and warmup_s
    are kept where given. loads: how many measurements a trial has; change_s: what a change of the
    settings takes before them."""
    warmup = DEFAULT_WARMUP_S if warmup_s is None else warmup_s
    if budget.total_s is None:
        window_s = window_s or DEFAULT_WINDOW_S
        return _split(budget.trials or MIN_TRIALS, window_s, warmup, loads, change_s)
    left_s = max(0.0, budget.total_s - spent_s)
    if window_s is None:
        window_s = _fitted_s(left_s, warmup, loads, change_s)
    each_s = loads * (window_s + warmup + DRAIN_S)
    slots = BASELINES + int((left_s - BASELINES * each_s) / (each_s + change_s))
    return _split(max(MIN_TRIALS, slots), window_s, warmup, loads, change_s)


def _fitted_s(left_s: float, warmup_s: float, loads: int, change_s: float) -> float:
    """The window's length: what fits, but no shorter than the change of settings that it follows,
    up to the default."""
    fitting_s = (left_s / SLOTS - change_s) / loads - warmup_s - DRAIN_S
    if fitting_s < USUAL_WINDOW_S:
        fitting_s = (left_s / FEW_SLOTS - change_s) / loads - warmup_s - DRAIN_S
    least_s = max(MIN_WINDOW_S, min(DEFAULT_WINDOW_S, change_s / loads))
    return min(MAX_WINDOW_S, max(least_s, fitting_s))


def shortage(budget: Budget, made: Plan, pairs: int, most: int | None = None) -> str:
    """Why this budget is likely to end without a confirmed gain, which takes so many pairs; "" for
    no reason. most: measurements that one baseline takes at most, where they are not `loads`."""
    count = trials_to_confirm(0, pairs)
    enough = f'"{count} trials"' if budget.trials is not None else f"{count * made.slot_s:.0f}s"
    told = f"a gain could be confirmed from a --budget of about {enough} on"
    baselines_s = replace(made, loads=most or made.loads).baselines_s
    if budget.total_s is not None and baselines_s >= budget.total_s:
        return (
            f"the two baselines alone may take {baselines_s:.0f} s, and the budget has "
            f"{budget.total_s:.0f} s; {told}"
        )
    if made.confirm_slots < 2 * pairs:
        return f"this budget leaves less than the {pairs} pairs of runs a gain takes; {told}"
    return ""


def trials_to_confirm(used: int, pairs: int) -> int:
    """The smallest budget, in trials of the whole study, that leaves so many pairs with the
    baseline after `used` trials."""
    slots = 2 * pairs
    return next(
        total
        for total in itertools.count(max(MIN_TRIALS, used + slots))
        if _split(total, DEFAULT_WINDOW_S, DEFAULT_WARMUP_S, 1, 0.0).confirm_slots >= slots
    )


def _split(slots: int, window_s: float, warmup_s: float, loads: int, change_s: float) -> Plan:
    """Two baselines, the best confirmation that its share pays for, the rest for the search."""
    left = slots - BASELINES
    finalists, rounds = next(
        (
            (finalists, rounds)
            for finalists, rounds in CONFIRM_PLANS
            if _confirm_slots(finalists, rounds) <= CONFIRM_SHARE * left
        ),
        (1, 1),
    )
    search = left - _confirm_slots(finalists, rounds)
    return Plan(window_s, warmup_s, search, rounds, finalists, loads, change_s)


def _confirm_slots(finalists: int, rounds: int) -> int:
    together = min(rounds, ALL_FINALISTS)
    return together * (1 + finalists) + (rounds - together) * 2
