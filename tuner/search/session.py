"""What every stage of a search works with, and how one trial is measured.

Invariant: a trial that was begun before a kill is finished, not begun again: what is stored of it
counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from storage.rows import Stage
from tuner.search.budget import Plan
from tuner.search.early import Beaten
from tuner.search.goal import Goal
from tuner.search.ledger import Ledger
from tuner.search.noise import noise_of
from tuner.search.pace import Pace
from tuner.search.proposals import Proposer
from tuner.search.ruled_out import Arithmetic
from tuner.search.space import Space
from tuner.search.trial import Lab, Outcome, run_trial
from tuner.search.trials import Config, Trial, explored, trials_of
from tuner.search.workers import Workers
from tuner.stats import Estimate
from tuner.workload import Workload

FAILURE_LIMIT = 5
"""Failed trials in a row after which the search ends: something else is wrong."""

POLL_S = 1.0
"""How often a worker that has nothing to do looks what the others have done."""


class Events(Protocol):
    """What a person is told while it runs."""

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None: ...

    def done(self, outcome: Outcome) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Search:
    """All that a search works with. wait: how a worker passes time until others are done. levers:
    (knob, direction) that the diagnosis of the baseline proposes, once there is one."""

    lab: Lab
    ledger: Ledger
    proposer: Proposer
    space: Space
    goal: Goal
    plan: Plan
    pace: Pace
    events: Events
    baseline: Config
    seed: int = 0
    workers: Workers = field(default_factory=lambda: Workers("study"))
    arithmetic: Arithmetic = field(default_factory=lambda: Arithmetic(0))
    wait: Callable[[float], None] = time.sleep
    levers: Callable[[], Sequence[tuple[str, str]]] = tuple

    @property
    def trials(self) -> list[Trial]:
        return trials_of(self.ledger.outcomes)

    def catch_up(self) -> None:
        """Inside a turn: learn what other workers have stored."""
        self.ledger.refresh()
        self.proposer.sync(self.trials)

    def left(self) -> int:
        """Trials that the budget still allows beside those that others are measuring."""
        return self.pace.left() - len(self.proposer.running()) - self._claimed_by_others()

    def _claimed_by_others(self) -> int:
        measured = [[t.seed, t.config] for t in self.trials]
        return sum(
            member not in measured
            for members in self.workers.of_others().values()
            for member in members
        )


def measure(
    search: Search, config: Config, stage: Stage, seed: int, number: int | None = None
) -> Trial:
    """A whole trial, or what is missing of it. Where its levels say something alone (a search for
    the capacity), it ends with the time of the budget."""
    begun = [t for t in search.trials if (t.stage, t.seed, t.config) == (stage, seed, config)]
    trial = begun[0] if begun else None
    start = search.goal.start(search.trials, config, stage)
    while (load := search.goal.next_load(stage, trial, start)) is not None:
        if trial is not None and out_of_time(search):
            break
        search.events.begin(stage, config, search.pace)
        outcome = run_trial(
            search.lab, config, stage=stage, seed=seed, trial_number=number, workload=load,
            early_end=_early_end(search, stage, load), until_decided=search.goal.until_decided,
        )  # fmt: skip
        search.ledger.add(outcome)
        search.events.done(outcome)
        trial = Trial((*(trial.parts if trial is not None else ()), outcome))
    assert trial is not None
    if told := search.goal.told(trial, search.trials):
        search.events.note(f"    {told}")
    return trial


def out_of_time(search: Search) -> bool:
    """Whether a trial that was begun is left as it is."""
    return search.goal.until_decided and search.pace.over()


def failing(trials: Sequence[Trial]) -> bool:
    last = trials[-FAILURE_LIMIT:]
    return len(last) == FAILURE_LIMIT and all(trial.failed for trial in last)


def _early_end(search: Search, stage: Stage, load: Workload) -> Beaten | None:
    """Trials of the search may end on evidence; what is compared or confirmed needs its window."""
    goal = search.goal
    if stage not in ("sweep", "search") or goal.until_decided:
        return None
    alone = len(goal.objectives) == 1 and len(goal.loads) == 1
    return Beaten(
        goal.slos,
        load,
        goal.objectives[0] if alone else None,
        _incumbent(search) if alone else None,
        noise_of(goal, search.trials).gain,
        search.lab.price_per_hour,
    )


def _incumbent(search: Search) -> Estimate | None:
    """The objective of the best explored trial that meets the SLOs."""
    objective, trials = search.goal.objectives[0], search.trials
    best: tuple[float, Estimate] | None = None
    for trial in explored(trials):
        reading = search.goal.read(trial, trials)
        value, made = reading.values[0], trial.parts[0].measurement
        if not reading.meets or value is None or made is None or trial.ended_early:
            continue
        if best is None or objective.better(value, best[0]):
            best = (value, made.summary[objective.key])
    return best[1] if best is not None else None
