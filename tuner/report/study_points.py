"""The trials of a study as they are drawn and listed: value, interval, SLOs met or not, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tuner.search.capacity import Capacity, bracket_of
from tuner.search.goal import Goal, Reading
from tuner.search.objective import CAPACITY, Objective
from tuner.search.trials import Trial
from tuner.slo import Verdict
from tuner.stats import Estimate
from tuner.units import show

State = Literal["pass", "fail", "inconclusive", "none"]


@dataclass(frozen=True, slots=True)
class Point:
    """A trial as it is drawn and listed. number: from 1, in order of time. estimates: one per
    objective, with the interval where the figure has one. reading: as the sampler saw it, but None
    for what was not measured. state "none": no result; why says why. early: what ended it before
    its time."""

    number: int
    trial: Trial
    reading: Reading
    estimates: tuple[Estimate | None, ...]
    state: State
    why: str = ""
    early: str = ""

    @property
    def value(self) -> float | None:
        return self.reading.values[0]

    @property
    def worst_margin(self) -> float | None:
        """log of the worst figure over its bound; None without SLOs or without a result."""
        margins = self.reading.margins[:-1]
        return max(margins) if margins and self.state != "none" else None


def point_of(number: int, trial: Trial, trials: Sequence[Trial], goal: Goal) -> Point:
    estimates = tuple(_estimate(trial, goal, objective) for objective in goal.objectives)
    reading = _as_measured(goal.read(trial, trials), estimates)
    early = next(
        (p.measurement.ended_why for p in trial.parts if p.ended_early and p.measurement), ""
    )
    state, why = _state(trial, goal)
    if state != "none" and reading.values[0] is None:
        why = why or _no_value(trial, goal)
    return Point(number, trial, reading, estimates, state, why, early)


def _as_measured(reading: Reading, estimates: Sequence[Estimate | None]) -> Reading:
    """Without what the sampler is told in place of a figure: a guess is no measurement."""
    values = tuple(
        None if found is not None and not found.measured else value
        for value, found in zip(reading.values, estimates, strict=True)
    )
    return replace(reading, values=values)


def _estimate(trial: Trial, goal: Goal, objective: Objective) -> Estimate | None:
    """None where a trial of several loads is worth a ratio, which has no interval of its own."""
    if not trial.ok or len(goal.loads) > 1:
        return None
    return _figure(trial, goal, objective.key)


def _figure(trial: Trial, goal: Goal, key: str) -> Estimate | None:
    """Under the first load."""
    if key == CAPACITY:
        pooled = goal.pooled([trial])
        return pooled.summary.get(CAPACITY) if pooled is not None else None
    made = trial.parts[0].measurement
    return made.summary.get(key) if made is not None else None


def _state(trial: Trial, goal: Goal) -> tuple[State, str]:
    failed = trial.failed_part
    if failed is not None:
        reason = (failed.failure_reason or "no reason given").splitlines()[0]
        return "none", f"{failed.state}: {reason}"
    made = [part.measurement for part in trial.parts if part.measurement is not None]
    if made and not any(one.counts.get("sent") for one in made):
        return "none", "no traffic: no request was due inside the window"
    if isinstance(goal, Capacity):
        found = bracket_of(trial.parts)
        return ("pass" if found.certain_met else "inconclusive" if found.met else "fail"), ""
    verdicts = [part.verdict for part in trial.parts if part.verdict is not None]
    states = [verdict.state for verdict in verdicts]
    if "fail" in states:
        return "fail", "; ".join(dict.fromkeys(_missed(v) for v in verdicts if v.state == "fail"))
    reasons = [v.reason or c.reason for v in verdicts for c in v.clauses if c.state != "pass"]
    why = next((reason for reason in reasons if reason), "")
    return ("inconclusive" if "inconclusive" in states else "pass"), why


def _missed(verdict: Verdict) -> str:
    """`ttft_p95<500ms: 702 ms` of each clause that is missed; or why all are."""
    told = [
        f"{c.clause.text}: {c.reason or show(c.estimate.value, c.estimate.unit)}"
        for c in verdict.clauses if c.state == "fail"
    ]  # fmt: skip
    return verdict.reason or "; ".join(told)


def _no_value(trial: Trial, goal: Goal) -> str:
    key = goal.objectives[0].key
    found = _figure(trial, goal, key)
    if found is not None and not found.measured:
        return f"no data for {key}: {found.reason}"
    if len(trial.parts) < len(goal.loads):
        return f"{len(trial.parts)} of {len(goal.loads)} loads measured: the SLOs were missed"
    return f"no finite {key}"
