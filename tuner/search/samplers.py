"""The samplers that --sampler names, made to hear constraints and to run beside other workers."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from tuner.search.space import Space

STARTUP_TRIALS = 6
POPULATION = 12
"""Of NSGA-II: a study of this kind has tens of trials, not thousands."""

GRID_POINTS = 5
"""Values of a range on the grid, ends included."""


def make_sampler(
    name: str, seed: int, space: Space, objectives: int = 1
) -> optuna.samplers.BaseSampler:
    """auto: a Gaussian process where torch is installed, else TPE, or NSGA-II for a front."""
    if name == "auto":
        without_torch = "tpe" if objectives == 1 else "nsga2"
        name = "gp" if importlib.util.find_spec("torch") is not None else without_torch
    options: dict[str, Any] = {"seed": seed, "constraints_func": constraints_of}
    with quietly():
        if name == "gp":
            return optuna.samplers.GPSampler(n_startup_trials=STARTUP_TRIALS, **options)
        if name == "tpe":
            return optuna.samplers.TPESampler(
                multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS, **options
            )
        if name == "nsga2":
            return optuna.samplers.NSGAIISampler(population_size=POPULATION, **options)
        if name == "grid":
            return _Grid(_grid(space), seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)


class _Grid(optuna.samplers.GridSampler):
    """Whoever asks looks himself whether the grid is exhausted; a study that does not run by itself
    cannot be stopped."""

    def after_trial(self, *_: object) -> None: ...


@contextmanager
def quietly() -> Iterator[None]:
    """Without Optuna's warnings of experimental and ageing features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def constraints_of(trial: FrozenTrial) -> Sequence[float]:
    margins: Sequence[float] = trial.user_attrs.get("margins", (1.0,))
    return margins


def _grid(space: Space) -> dict[str, list[float]]:
    """Positions in [0, 1]: the middles of listed values, GRID_POINTS of a range."""
    grid = {}
    for axis in space.axes:
        count = len(axis.values)
        if count:
            grid[axis.name] = [(i + 0.5) / count for i in range(count)]
        else:
            grid[axis.name] = [i / (GRID_POINTS - 1) for i in range(GRID_POINTS)]
    return grid
