"""The procedures the tuner is compared with."""

from __future__ import annotations

from itertools import product

import numpy as np
import optuna

from benchmarks.efficiency.course import Course, Rival, Task
from tuner.search.trials import Config

LOWERED_PROMPTS, FULL_PROMPTS, SETTLE_S = 100, 1000, 5.0
"""Of vLLM's auto_tune.sh: requests at a lowered rate and at rate inf; its sleep between runs."""


def grid(task: Task, seed: int) -> Course:
    """Every point once, in random order; the SLOs are applied to what was measured."""
    rival = Rival(task, seed)
    for config in _shuffled(task, seed):
        rival.tried(config)
    return rival.course


def random_search(task: Task, seed: int) -> Course:
    """Points drawn without replacement."""
    rival = Rival(task, seed)
    for config in _shuffled(task, seed)[: task.trials]:
        rival.tried(config)
    return rival.course


def tpe_penalised(task: Task, seed: int) -> Course:
    """A missed SLO scores nothing."""
    return _tpe(task, seed, penalised=True)


def tpe_filtered(task: Task, seed: int) -> Course:
    """The sampler knows the objective only; the SLOs are applied to what was measured."""
    return _tpe(task, seed, penalised=False)


def _tpe(task: Task, seed: int, *, penalised: bool) -> Course:
    """A plain Optuna study: each knob's values by their rank, a crash is a failed trial, points may
    repeat and are then measured again."""
    rival, direction = Rival(task, seed), task.objective.direction
    nothing = 0.0 if task.objective.higher_is_better else 1e9

    def objective(trial: optuna.Trial) -> float:
        config = {
            name: values[trial.suggest_int(name, 0, len(values) - 1)]
            for name, values in task.surface.grid.items()
        }
        outcome = rival.tried(config)
        value = rival.value_of(outcome)
        if value is None:
            raise RuntimeError(outcome.failure_reason)
        return nothing if penalised and not outcome.meets_by_estimate else value

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=task.trials, catch=(RuntimeError,))
    return rival.course


def _shuffled(task: Task, seed: int) -> list[Config]:
    names, values = task.surface.grid.keys(), task.surface.grid.values()
    points = [dict(zip(names, point, strict=True)) for point in product(*values)]
    order = np.random.default_rng((seed, 1)).permutation(len(points))
    return [points[place] for place in order]


def auto_tune_least_s(task: Task) -> float:
    """The least machine time of vLLM's auto_tune.sh on this surface: for each max_num_seqs ×
    chunk_size at the highest memory share, 1000 requests at rate inf and one run of 100 at a
    lowered rate, both at the throughput recorded. Server starts are left out, and so are all
    further rates: the surface has one load, so where it stops lowering is not known."""
    surface = task.surface
    memory = max(surface.grid.get("gpu_memory_utilization", (0.0,)))
    total_s = 0.0
    for runs in surface.points.values():
        requests = sum(len(run.inside) for run in runs)
        if requests and runs[0].config.get("gpu_memory_utilization", memory) == memory:
            measured_s = sum(run.window_s[1] - run.window_s[0] for run in runs)
            total_s += (FULL_PROMPTS + LOWERED_PROMPTS) * measured_s / requests + SETTLE_S
    return total_s
