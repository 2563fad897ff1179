"""How much each knob matters for a figure, from the measurements of a study: Optuna's PED-ANOVA.

It compares where the better measurements lie with where all of them lie, so that a sampler which
looked mostly in one place does not make that place important. Invariant: no share without its
interval (bootstrap over the measurements, a fixed seed), and none at all from too few of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from tuner.search.samplers import quietly

FEWEST_BETTER = 5
"""PED-ANOVA's own advice: the better measurements should be at least five."""

FEWEST = 2 * FEWEST_BETTER
TARGET_SHARE = 0.25
"""Of the measurements count as the better ones, where that makes FEWEST_BETTER."""

RESAMPLES = 200
SURE = 0.95

Point = tuple[Mapping[str, float], float]


@dataclass(frozen=True, slots=True)
class Share:
    """Of all knobs' importance together, with the 95 % interval of the bootstrap."""

    knob: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Importances:
    """shares: most important first, empty where why_not says why. better: how many of the n
    measurements the others are compared with. first_again: share of the resamples in which the
    first knob was first again."""

    n: int
    shares: tuple[Share, ...] = ()
    better: int = 0
    first_again: float = math.nan
    why_not: str = ""

    @property
    def sure(self) -> bool:
        """Whether the first knob is the first beyond doubt."""
        return self.first_again >= SURE


def importances(points: Sequence[Point], knobs: Sequence[str], seed: int = 0) -> Importances:
    """points: (position of each knob in [0, 1], value: less is better)."""
    n = len(points)
    if why_not := _why_not(points, knobs):
        return Importances(n, why_not=why_not)
    better = max(FEWEST_BETTER, round(TARGET_SHARE * n))
    if len(knobs) == 1:
        return Importances(n, (Share(knobs[0], 1.0, 1.0, 1.0),), better, 1.0)
    found = _shares(points, knobs, better / n)
    rng = np.random.default_rng(seed)
    drawn = [[points[i] for i in rng.integers(n, size=n)] for _ in range(RESAMPLES)]
    again = [
        _shares(sample, knobs, better / n) for sample in drawn if len({v for _, v in sample}) > 1
    ]
    table = np.array([[one[knob] for knob in knobs] for one in again])
    low, high = np.quantile(table, [0.025, 0.975], axis=0)
    shares = sorted(
        (
            Share(knob, found[knob], min(found[knob], float(a)), max(found[knob], float(b)))
            for knob, a, b in zip(knobs, low, high, strict=True)
        ),
        key=lambda share: -share.value,
    )
    first = list(knobs).index(shares[0].knob)
    first_again = float(np.mean(table.argmax(axis=1) == first))
    return Importances(n, tuple(shares), better, first_again)


def _why_not(points: Sequence[Point], knobs: Sequence[str]) -> str:
    if not knobs:
        return "no knob was varied"
    if len(points) < FEWEST:
        return f"{len(points)} measurements with a result, and at least {FEWEST} are needed"
    if len({value for _, value in points}) < 2:
        return "the figure was the same in all of them"
    return ""


def _shares(points: Sequence[Point], knobs: Sequence[str], quantile: float) -> dict[str, float]:
    """Share of each knob; they add up to 1."""
    axis = FloatDistribution(0.0, 1.0)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with quietly():
        study = optuna.create_study(direction="minimize")
        study.add_trials(
            [
                optuna.trial.create_trial(
                    params={knob: position[knob] for knob in knobs},
                    distributions=dict.fromkeys(knobs, axis),
                    value=value,
                )
                for position, value in points
            ]
        )
        found = get_param_importances(
            study,
            evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile),
            params=list(knobs),
        )
    return {knob: float(found.get(knob, 0.0)) for knob in knobs}
