"""Which advice holds up: earlier verifications, by node, knob and direction.

Invariant: what was undecided counts neither for nor against.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage import Verification

FEWEST = 2
"""Decided verifications below which nothing is said of a piece of advice."""


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one piece of advice. ratios: realised, of the figure that decided."""

    node: str
    knob: str
    direction: str
    figure: str
    holds: int
    refuted: int
    harmful: int
    undecided: int
    median_ratio: float | None
    as_predicted: int
    predicted: int

    @property
    def decided(self) -> int:
        return self.holds + self.refuted + self.harmful

    @property
    def told(self) -> str:
        """A word on whether to follow it."""
        if self.decided < FEWEST:
            return "too few to tell"
        if self.holds == self.decided:
            return "holds up"
        return "keeps failing" if self.holds * 2 <= self.decided else "holds more often than not"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"told": self.told}


def records(rows: Sequence[Verification]) -> list[Record]:
    """One per advice, those tried most often first."""
    groups: dict[tuple[str, str, str, str], list[Verification]] = {}
    for row in rows:
        groups.setdefault((row.node or "", row.knob, row.direction, row.figure), []).append(row)
    made = [_record(key, group) for key, group in groups.items()]
    return sorted(made, key=lambda record: -record.decided)


def _record(key: tuple[str, str, str, str], group: Sequence[Verification]) -> Record:
    counts = Counter(row.outcome for row in group)
    ratios = [r for row in group if (r := (row.realised or {}).get("ratio")) is not None]
    forecasts = [row for row in group if row.predicted and row.realised]
    agreed = sum((row.realised or {}).get("prediction") == "as predicted" for row in forecasts)
    return Record(
        *key, counts["holds"], counts["refuted"], counts["harmful"], counts["undecided"],
        statistics.median(ratios) if ratios else None, agreed, len(forecasts),
    )  # fmt: skip
