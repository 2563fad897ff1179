"""How the series of a name become one figure: engines are added up, what one of them tells more
than once is not.

Invariant: series that differ in none of REPLICA_LABELS are one figure that several processes of the
same engine tell (`pid`, `tp_rank`), some of them as 0: the greatest counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from storage.sources import windows
from storage.sources.base import REPLICA_LABELS, Agg, Labels
from storage.sources.exposition import SeriesId, fold
from storage.sources.store import Series


def fold_replicas(found: Iterable[tuple[SeriesId, float]], agg: Agg) -> float | None:
    """As fold; a sum is over engines, of the greatest that each one's processes tell."""
    if agg != "sum":
        return fold((value for _, value in found), agg)
    each: dict[tuple[str, ...], list[float]] = {}
    for series, value in found:
        replica = tuple(series.labels.get(label, "") for label in REPLICA_LABELS)
        each.setdefault(replica, []).append(value)
    greatest = (fold(values, "max") for values in each.values())
    return fold((value for value in greatest if value is not None), "sum")


def part_of(labels: Labels, by: str) -> str:
    """The part of a breakdown that a series belongs to: the value of label `by`, or of several
    labels ("instance,engine") joined by "/"."""
    return "/".join(labels.get(label, "") for label in by.split(","))


def summed(found: Iterable[Series], start_s: float, end_s: float) -> windows.Increase | None:
    """Increases over [start_s, end_s] added up; None where no series has two samples in it."""
    parts = [windows.increase(s.times_s, s.values, start_s, end_s) for s in found]
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return windows.Increase(sum(p.value for p in there), max(p.samples for p in there))


def peaks(found: Iterable[Series], after_s: float, until_s: float) -> list[tuple[SeriesId, float]]:
    """Each series' greatest value in (after_s, until_s]; none for a series without a sample."""
    there = []
    for series in found:
        first, last = (bisect_right(series.times_s, at_s) for at_s in (after_s, until_s))
        greatest = fold(series.values[first:last], "max")
        if greatest is not None:
            there.append((series.id, greatest))
    return there
