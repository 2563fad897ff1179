"""What a series of samples does over a window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def mean(values: Sequence[float]) -> float:
    """Of what a server exports, which may be as large as a float can be."""
    return math.fsum(value / len(values) for value in values)


def third(values: Sequence[float]) -> int:
    """How many are a third of them, at least one."""
    return max(1, len(values) // 3)


def rise(values: Sequence[float]) -> float:
    """Mean of the last third minus mean of the first third."""
    count = third(values)
    return mean(values[-count:]) - mean(values[:count])


def growing_s(points: Sequence[tuple[float, float]], bins: int = 10) -> float:
    """For how long, up to the last point, the queue's binned mean has only grown (seconds).

    Bins smooth the noise of arrivals; a bin no greater than the one before it ends the growth.
    """
    start_s, end_s = points[0][0], points[-1][0]
    width_s = (end_s - start_s) / bins
    if width_s <= 0:
        return 0.0
    groups: list[list[float]] = [[] for _ in range(bins)]
    for at, value in points:
        groups[min(bins - 1, int((at - start_s) / width_s))].append(value)
    filled = [(i * width_s, mean(group)) for i, group in enumerate(groups) if group]
    grown_from_s = end_s - start_s
    for (_, before), (began_s, now) in reversed(list(pairwise(filled))):
        if now <= before:
            break
        grown_from_s = began_s
    return end_s - start_s - grown_from_s


def grew_throughout(points: Sequence[tuple[float, float]]) -> bool:
    """Whether the queue's mean is greater in each third of the time than in the one before: then it
    may have begun to grow before the first point."""
    return growing_s(points, bins=3) > (points[-1][0] - points[0][0]) / 2
