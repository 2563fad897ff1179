"""How much runs of one configuration differ, learned from every configuration that was repeated.

Two runs say next to nothing about their spread. It is therefore taken as one relative noise that
all configurations of a study share, per figure: a standard deviation of logarithms (of log odds for
shares), less what the runs' own intervals explain. Where little or nothing was repeated, a stated
default stands in. Invariant: a noise always has enough degrees of freedom to decide something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.stats import f, norm, t

from tuner.stats.estimate import CONFIDENCE, Estimate

Floats = npt.NDArray[np.float64]

DEFAULT_SD = 0.08
"""Assumed between runs of one configuration where nothing was repeated: 8 %."""

FEWEST_DEGREES = 4.0
"""Fewer degrees of freedom than this are filled up with the default's."""

EXPLAINED = 0.4
"""Share of the variance by a run's own interval that is taken off the spread between runs: the
intervals of short runs are wider than their error, by Student's t and by caution."""

OUTLIER_LEVEL = 0.002
"""A configuration that scatters more than the others at this level is no example of them."""

OWN_LEVEL = 0.05
"""A configuration's own spread counts instead where it exceeds the shared one at this level."""


@dataclass(frozen=True, slots=True)
class RunNoise:
    """Standard deviation between runs (relative: of logarithms), known with these degrees of
    freedom."""

    sd_log: float = DEFAULT_SD
    degrees: float = FEWEST_DEGREES

    def reach(self, runs: Sequence[Estimate], confidence: float = CONFIDENCE) -> float:
        """Half the interval of the mean logarithm of these runs, from their noise alone."""
        sd = self.sd_log
        spread = _spread(runs)
        if spread is not None:
            expected = sd**2 + spread.within
            if spread.between > expected * float(f.isf(OWN_LEVEL, spread.degrees, self.degrees)):
                sd = math.sqrt(spread.between)
        quantile = float(t.isf((1 - confidence) / 2, self.degrees))
        return quantile * sd / math.sqrt(max(1, len(runs)))


@dataclass(frozen=True, slots=True)
class _Spread:
    """Variance between the runs of a configuration, and that which their intervals explain."""

    between: float
    within: float
    degrees: int


def run_noise(
    groups: Sequence[Sequence[Estimate]],
    *,
    default_sd: float = DEFAULT_SD,
    with_sampling: bool = False,
) -> RunNoise:
    """The shared noise of one figure: each group holds the runs of one configuration.

    Groups of one run, and runs without a finite positive figure, say nothing. The degrees of
    freedom of the groups add up; the default fills what they lack. A group that scatters clearly
    more than all others (a bad hour, a configuration at its limit) is left out. with_sampling:
    leave in what the runs' own intervals explain, for those who know only the runs' values.
    """
    spreads = _alike([spread for group in groups if (spread := _spread(group)) is not None])
    degrees = float(sum(spread.degrees for spread in spreads))
    taken_off = 0.0 if with_sampling else EXPLAINED
    excess = sum(
        spread.degrees * (spread.between - taken_off * spread.within) for spread in spreads
    )
    missing = max(0.0, FEWEST_DEGREES - degrees)
    variance = (max(0.0, excess) + missing * default_sd**2) / (degrees + missing)
    return RunNoise(math.sqrt(variance), degrees + missing)


def run_noises(groups: Sequence[Sequence[Mapping[str, Estimate]]]) -> dict[str, RunNoise]:
    """run_noise of every figure: each group holds the summaries of one configuration's runs."""
    keys = dict.fromkeys(key for group in groups for summary in group for key in summary)
    return {
        key: run_noise([[s[key] for s in group if key in s] for group in groups]) for key in keys
    }


def run_parts(
    values: Floats, sizes: Floats | None, runs: Sequence[int] | None
) -> list[tuple[Floats, Floats | None]]:
    """(values, sizes) of each run."""
    lengths = [length for length in runs or () if length]
    if len(lengths) < 2:
        return [(values, sizes)]
    edges = np.concatenate([[0], np.cumsum(lengths)])
    if sizes is None:
        return [(values[a:b], None) for a, b in pairwise(edges)]
    at = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    return [(values[at[a] : at[b]], sizes[a:b]) for a, b in pairwise(edges)]


def widened(estimate: Estimate, reach: float) -> Estimate:
    """The estimate of a positive figure with the noise between runs in its interval: both errors
    added in quadrature, as logarithms, on each side."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if not 0 < value < math.inf or reach <= 0:
        return estimate
    if low > 0:
        low = value * math.exp(-math.hypot(math.log(value / low), reach))
    if math.isfinite(high):
        high = value * math.exp(math.hypot(math.log(max(1.0, high / value)), reach))
    return replace(estimate, low=low, high=high)


def _alike(spreads: Sequence[_Spread]) -> list[_Spread]:
    """Without those that exceed what all others show at OUTLIER_LEVEL."""
    kept = []
    for spread in spreads:
        others = [other for other in spreads if other is not spread]
        degrees = sum(other.degrees for other in others)
        if degrees:
            shared = sum(other.degrees * other.between for other in others) / degrees
            limit = float(f.isf(OUTLIER_LEVEL, spread.degrees, degrees))
            if spread.between > limit * max(shared, spread.within):
                continue
        kept.append(spread)
    return kept


def _spread(runs: Sequence[Estimate]) -> _Spread | None:
    usable = [r for r in runs if r.measured and (r.unit == "share" or 0 < r.value < math.inf)]
    if len(usable) < 2:
        return None
    logs = np.array([_scaled(run) for run in usable])
    within = float(np.mean([_error(run) ** 2 for run in usable]))
    return _Spread(float(logs.var(ddof=1)), within, len(usable) - 1)


def _scaled(run: Estimate) -> float:
    """Logarithm of a positive figure, log odds of a share (one half added to both counts)."""
    if run.unit != "share":
        return math.log(run.value)
    n = max(1.0, run.effective_n or run.n)
    return math.log((run.value * n + 0.5) / ((1 - run.value) * n + 0.5))


def _error(run: Estimate) -> float:
    """Standard error of one run by the narrower side of its interval; 0 where neither is known.

    The wider side of a skewed or short run would explain too much."""
    if run.unit == "share":
        n = max(1.0, run.effective_n or run.n)
        return math.sqrt(1 / (run.value * n + 0.5) + 1 / ((1 - run.value) * n + 0.5))
    sides = [math.log(run.value / run.low)] if run.low > 0 else []
    if math.isfinite(run.high):
        sides.append(math.log(run.high / run.value))
    return min(sides, default=0.0) / float(norm.isf((1 - CONFIDENCE) / 2))
