"""One contestant's study on a replayed surface, from its start to its last word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.efficiency.replay import Replay
from benchmarks.efficiency.surface import Surface
from tuner.search.objective import Objective
from tuner.search.trial import Lab, Outcome, run_trial
from tuner.search.trials import Config
from tuner.slo import SloSet


@dataclass(frozen=True)
class Task:
    """What every contestant is given. trials: of those whose user must say how many."""

    surface: Surface
    slos: SloSet
    objective: Objective
    budget_s: float
    trials: int


@dataclass
class Course:
    """claims: (machine time, the configuration named as the best that meets the SLOs from then on,
    None for none). spent_s: until it ended by itself. ended_early: measurements. answer: the
    tuner's own word for how its study ended."""

    spent_s: float = 0.0
    claims: list[tuple[float, Config | None]] = field(default_factory=list)
    measurements: int = 0
    ended_early: int = 0
    answer: str = ""

    def claim(self, at_s: float, config: Config | None) -> None:
        if not self.claims or self.claims[-1][1] != config:
            self.claims.append((at_s, config))

    def claimed_at(self, at_s: float) -> Config | None:
        """What it claims at a machine time."""
        made = [config for since_s, config in self.claims if since_s <= at_s]
        return made[-1] if made else None

    @property
    def winner(self) -> Config | None:
        return self.claims[-1][1] if self.claims else None


Contestant = Callable[[Task, int], Course]
"""Runs a study under a seed."""


class Rival:
    """Measures whole windows of the recorded length and claims the best that met every clause at
    its estimate: what a loop around a load generator does."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._replay = Replay(task.surface, seed)
        self._lab = Lab(
            self._replay, task.surface.workload, task.slos, self._replay.measure,
            task.surface.window_s, task.surface.warmup_s, clock=self._replay.clock,
        )  # fmt: skip
        self._best: float | None = None
        self.course = Course()

    def tried(self, config: Config) -> Outcome:
        course, objective = self.course, self._task.objective
        outcome = run_trial(self._lab, config, stage="search", seed=course.measurements)
        course.measurements += 1
        course.spent_s = self._replay.clock_s
        value = self.value_of(outcome)
        if value is None or not outcome.meets_by_estimate:
            return outcome
        if self._best is None or objective.better(value, self._best):
            self._best = value
            course.claim(course.spent_s, config)
        return outcome

    def value_of(self, outcome: Outcome) -> float | None:
        made = outcome.measurement
        return self._task.objective.value(made.summary) if outcome.ok and made else None
