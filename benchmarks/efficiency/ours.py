"""`tuner optimize` on a replayed surface: the real search, sampler, confirmation and budget."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.efficiency.course import Course, Task
from benchmarks.efficiency.replay import Replay
from storage.rows import Stage
from tuner.search.budget import parse_budget, plan
from tuner.search.candidates import ranked
from tuner.search.each_load import EachLoad
from tuner.search.optimize import Search, optimize
from tuner.search.pace import Pace
from tuner.search.proposals import Proposer
from tuner.search.ruled_out import Arithmetic
from tuner.search.space import joint_space
from tuner.search.trial import Lab, Outcome
from tuner.search.trials import Config, trials_of
from tuner.search.workers import Workers
from tuner.targets.base import setting_text


class Memory:
    """A ledger for the life of the process."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def refresh(self) -> None: ...


class Watch:
    """Keeps what a person would be shown as the best so far."""

    def __init__(self, memory: Memory, goal: EachLoad, replay: Replay, course: Course) -> None:
        self._memory, self._goal, self._replay, self._course = memory, goal, replay, course

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None: ...

    def note(self, text: str) -> None: ...

    def done(self, outcome: Outcome) -> None:
        self._course.measurements += 1
        self._course.ended_early += outcome.ended_early
        if outcome.stage == "confirm":
            return
        trials = trials_of(self._memory.outcomes)
        best = ranked(self._goal, trials, trials)
        if best:
            self._course.claim(self._replay.clock_s, best[0])


def from_anywhere(sampler: str, task: Task, seed: int) -> Course:
    """As slotune(), but beginning at a point drawn from those that have a result."""
    usable = [runs[0].config for runs in task.surface.points.values() if runs[0].records]
    baseline = random.Random(seed).choice(usable)
    return slotune(sampler, replace(task, surface=replace(task.surface, baseline=baseline)), seed)


def slotune(sampler: str, task: Task, seed: int) -> Course:
    """With this --sampler, the task's --budget and a --knob for each of the grid's axes. At the end
    it claims what it recommends if that is shown to meet the SLOs, else nothing."""
    replay, memory, course = Replay(task.surface, seed), Memory(), Course()
    goal = EachLoad((task.objective,), task.slos, (task.surface.workload,))
    decision = optimize(_search(task, seed, sampler, goal, replay, memory, course))
    course.spent_s, course.answer = replay.clock_s, decision.answer
    course.claim(course.spent_s, decision.chosen_config if decision.met else None)
    return course


def _search(
    task: Task,
    seed: int,
    sampler: str,
    goal: EachLoad,
    replay: Replay,
    memory: Memory,
    course: Course,
) -> Search:
    budget = parse_budget(f"{task.budget_s:g}s")
    surface = task.surface
    start_s = 0.0 if surface.live else surface.change_s(surface.baseline)
    planned = plan(budget, start_s, change_s=start_s)
    texts = [
        f"{name}={','.join(map(setting_text, values))}"
        for name, values in task.surface.grid.items()
    ]
    space, rules, workers = joint_space(replay.knobs(), texts), Arithmetic(0), Workers("study")
    lab = Lab(
        replay, goal.loads[0], goal.slos, replay.measure, planned.window_s, planned.warmup_s,
        clock=replay.clock,
    )  # fmt: skip
    proposer = Proposer(
        space, goal, sampler_name=sampler, seed=seed, rules_out=rules.rules_out,
        worker=workers.me, alive=workers.alive,
    )  # fmt: skip
    return Search(
        lab, memory, proposer, space, goal, planned, Pace(budget, planned, memory, replay.clock),
        Watch(memory, goal, replay, course), dict(task.surface.baseline), seed, workers, rules,
    )  # fmt: skip
