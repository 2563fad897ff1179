"""How far a quantile may lie from its estimate where too few independent samples bound it.

Order statistics need some number of independent samples (73 for both ends of a p95). Where
dependence leaves fewer, two things are asked of the samples themselves, on a logarithmic scale:
how much the quantile differs between sections of the run, and how the tail above it goes on.
Infinite values (failures) are never extrapolated: a section that has too many is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, t

Floats = npt.NDArray[np.float64]

SECTIONS = 5
"""Of each run. Fewer make Student's t wide, more do not outlast the correlation of short runs: of 4
to 16, five came nearest to 95 % with 60 to 640 requests (see docs/measuring.md)."""

FEWEST_PER_SECTION = 4
"""Requests; shorter runs are cut together, as one series."""

LARGEST_TAIL = 0.5
"""A tail is fitted above the median at most."""


def quantile(sorted_values: Floats, q: float) -> float:
    """Smallest observed x with F(x) ≥ q."""
    return float(sorted_values[max(0, math.ceil(q * len(sorted_values) - 1e-9) - 1)])


def sections_reach(
    values: Floats,
    q: float,
    tail: float,
    sizes: Floats | None = None,
    runs: Sequence[int] | None = None,
) -> float:
    """Half the interval of log Q(q) by sectioning (Asmussen & Glynn 2007, III.4; Nakayama 2014).

    Each run is cut into sections of consecutive requests; the deviations of their quantiles from
    the run's own give the variance, Student's t the width. A single run's is never narrower than
    the largest of these deviations, so it holds what the run drifted by. ∞ where a section has no
    finite quantile.
    """
    parts = _cut(values, sizes, runs)
    squares, largest, count = 0.0, 0.0, 0
    for sections in parts:
        whole = quantile(np.sort(np.concatenate(sections)), q)
        for section in sections:
            here = quantile(np.sort(section), q)
            if not 0 < here < math.inf or not 0 < whole < math.inf:
                return math.inf
            apart = abs(math.log(here / whole))
            squares, largest = squares + apart**2, max(largest, apart)
        count += len(sections)
    degrees = count - len(parts)
    if degrees < 1:
        return math.inf
    reach = float(t.isf(tail, degrees)) * math.sqrt(squares / degrees / count)
    return max(reach, largest / math.sqrt(len(parts)))


def tail_reach(ordered: Floats, q: float, m: int, tail: float) -> float:
    """How far above the q-quantile log Q may lie, with m independent samples and error tail.

    The share above the estimate may in truth be as large as its exact binomial limit; from there
    to 1 − q the tail is followed as an exponential one of the logarithms (Weissman 1978), whose
    mean excess (Hill 1975) is taken one standard error larger. Tails of common latencies are
    lighter, so the reach is long rather than short. Failures count as the slowest answer here.
    """
    rare = 1 - q
    most = float(beta.isf(tail, rare * m + 1, max(1e-9, q * m)))
    share = max(rare, min(LARGEST_TAIL, most))
    level = quantile(ordered, 1 - share)
    finite = ordered[np.isfinite(ordered)]
    above = ordered[ordered > level]
    if share <= rare or not len(above) or level <= 0 or not len(finite):
        return 0.0
    excess = float(np.mean(np.log(np.minimum(above, finite[-1]) / level)))
    excess *= 1 + 1 / math.sqrt(max(1.0, share * m))
    return max(0.0, excess) * math.log(share / rare)


def _cut(values: Floats, sizes: Floats | None, runs: Sequence[int] | None) -> list[list[Floats]]:
    """The sections of each run, none of them empty."""
    requests = len(values) if sizes is None else len(sizes)
    lengths = [length for length in (runs or [requests]) if length]
    if min(lengths, default=0) < SECTIONS * FEWEST_PER_SECTION:
        lengths = [requests]
    ends = np.arange(1, requests + 1) if sizes is None else np.cumsum(sizes).astype(int)
    starts = np.concatenate([[0], ends])
    parts, first = [], 0
    for length in lengths:
        edges = starts[first + np.round(np.linspace(0, length, SECTIONS + 1)).astype(int)]
        cut = np.split(values[edges[0] : edges[-1]], edges[1:-1] - edges[0])
        parts.append([section for section in cut if len(section)])
        first += length
    return parts
