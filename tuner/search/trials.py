"""Trials: the measurements of one configuration that belong together, under one seed.

A trial has one measurement per load: one in a plain study, one per --workload in a robust one, one
per probed level where capacity is sought. Invariant: trials follow from the stored measurements
alone, so that a study resumed after a kill sees which of them are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage.rows import Stage
from tuner.search.trial import Outcome
from tuner.targets.base import Setting

Config = dict[str, Setting]


@dataclass(frozen=True, slots=True)
class Trial:
    """parts in order of time, at least one, of equal stage, configuration and seed."""

    parts: tuple[Outcome, ...]

    @property
    def stage(self) -> Stage:
        return self.parts[0].stage

    @property
    def config(self) -> Config:
        return self.parts[0].config

    @property
    def seed(self) -> int:
        return self.parts[0].seed

    @property
    def number(self) -> int | None:
        return self.parts[0].trial_number

    @property
    def failed_part(self) -> Outcome | None:
        """The first measurement without a result; it ends its trial. Who serves less of the same
        load and breaks under more, has shown what it serves: that is no failure."""
        met = [part for part in self.parts if part.meets_by_estimate]
        broken = (part for part in self.parts if not part.ok)
        return next((p for p in broken if not any(_less_of(m, p) for m in met)), None)

    @property
    def ok(self) -> bool:
        return self.failed_part is None

    @property
    def failed(self) -> bool:
        """Without a result by a fault, not only by the load generator's own."""
        part = self.failed_part
        return part is not None and part.state == "failed"

    @property
    def ended_early(self) -> bool:
        return any(part.ended_early for part in self.parts)

    @property
    def failure_reason(self) -> str:
        part = self.failed_part
        return part.failure_reason if part is not None else ""

    @property
    def spent_s(self) -> float:
        return sum(part.spent_s for part in self.parts)


def number_of(config: Mapping[str, Setting], knob: str) -> float | None:
    """A setting that can be calculated with; None for a word, a switch or an absent knob."""
    value = config.get(knob)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def _less_of(part: Outcome, other: Outcome) -> bool:
    """Whether the first had the same load as the other at a lower level."""
    mine, its = part.workload, other.workload
    if mine is None or its is None or mine.arrivals.kind != its.arrivals.kind:
        return False
    level = its.arrivals.level
    return mine.arrivals.level < level and mine.at(level) == its


def trials_of(outcomes: Iterable[Outcome]) -> list[Trial]:
    """In order of their first measurements."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        key = (outcome.stage, outcome.seed, *sorted(outcome.config.items()))
        groups.setdefault(key, []).append(outcome)
    return [Trial(tuple(parts)) for parts in groups.values()]


def of_config(trials: Iterable[Trial], config: Config) -> list[Trial]:
    return [trial for trial in trials if trial.config == config]


def explored(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.stage in ("sweep", "search")]


def distinct(trials: Sequence[Trial]) -> list[Config]:
    """Configurations in order of their first trial."""
    found: list[Config] = []
    for trial in trials:
        if trial.config not in found:
            found.append(trial.config)
    return found
