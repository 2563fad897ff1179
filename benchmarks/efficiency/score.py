"""Courses scored against the truth, and what a contestant's seeds come to together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.efficiency.course import Course
from benchmarks.efficiency.truth import Truth

ENOUGH = 0.95
"""Share of the best truly feasible objective that counts as having found it."""


@dataclass(frozen=True)
class Score:
    """Of one study. share: of the best, by its last claim. enough_s: machine time at its first
    claim that reaches ENOUGH; None where it never did. false: its last claim does not meet the
    SLOs. share_early: of what it claimed at the machine time that the tuner's median study takes;
    None where the tuner did not take part."""

    seed: int
    spent_s: float
    share: float
    share_early: float | None
    enough_s: float | None
    claimed: bool
    false: bool
    measurements: int
    ended_early: int
    winner: dict[str, Any] | None
    answer: str


def score(course: Course, truth: Truth, seed: int, early_s: float | None) -> Score:
    enough = [at_s for at_s, config in course.claims if truth.share(config) >= ENOUGH]
    return Score(
        seed=seed,
        spent_s=course.spent_s,
        share=truth.share(course.winner),
        share_early=None if early_s is None else truth.share(course.claimed_at(early_s)),
        enough_s=min(enough, default=None),
        claimed=course.winner is not None,
        false=course.winner is not None and not truth.feasible(course.winner),
        measurements=course.measurements,
        ended_early=course.ended_early,
        winner=course.winner,
        answer=course.answer,
    )


@dataclass(frozen=True)
class Summary:
    """(median, lowest, highest) over the seeds, or how many of them. enough_s: infinite for those
    that never reached it; None where none did."""

    name: str
    seeds: int
    spent_s: tuple[float, float, float]
    share: tuple[float, float, float]
    share_early: tuple[float, float, float] | None
    enough: int
    enough_s: tuple[float, float, float] | None
    claimed: int
    true: int
    measurements: float
    ended_early: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summary(name: str, scores: Sequence[Score]) -> Summary:
    reached = [s.enough_s if s.enough_s is not None else math.inf for s in scores]
    enough = sum(map(math.isfinite, reached))
    claimed = [s for s in scores if s.claimed]
    early = [s.share_early for s in scores if s.share_early is not None]
    return Summary(
        name=name,
        seeds=len(scores),
        spent_s=_spread([s.spent_s for s in scores]),
        share=_spread([s.share for s in scores]),
        share_early=_spread(early) if early else None,
        enough=enough,
        enough_s=_spread(reached) if enough else None,
        claimed=len(claimed),
        true=sum(not s.false for s in claimed),
        measurements=statistics.median(s.measurements for s in scores),
        ended_early=statistics.median(s.ended_early for s in scores),
    )


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)
