"""The outcomes of one configuration taken together, and the noise between the runs of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.search.trial import Outcome
from tuner.slo import SloSet
from tuner.slo.pooled import Pooled, pool_runs
from tuner.stats import CONFIDENCE, RunNoise, run_noises


def pool(
    outcomes: Sequence[Outcome],
    slos: SloSet,
    confidence: float = CONFIDENCE,
    noise: Mapping[str, RunNoise] | None = None,
) -> Pooled | None:
    """pool_runs of those with a result; None when there is none."""
    made = [o.measurement for o in outcomes if o.ok and o.measurement is not None]
    return pool_runs(made, slos, confidence, noise) if made else None


def noise_of(configurations: Sequence[Sequence[Outcome]]) -> dict[str, RunNoise]:
    """Of every figure, from the outcomes of each configuration under one load. What was ended
    early says nothing: its length depends on what it showed."""
    return run_noises(
        [
            [o.measurement.summary for o in outcomes
             if o.ok and not o.ended_early and o.measurement is not None]
            for outcomes in configurations
        ]
    )  # fmt: skip
