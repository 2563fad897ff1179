"""How sure a confirmation must be: its level is shared by all candidates, looks and objectives.

Who looks at several candidates several times finds a gain in noise sooner or later. Looks are
therefore few and fixed in advance, and each candidate at each look is judged at the nominal error
divided by candidates × looks (× objectives): over the whole study, resumed or not, the chance of a
false claim stays at or below the nominal one (Bonferroni). tests/tuner/search simulates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tuner.stats import CONFIDENCE

LOOKS = (2, 3, 5, 8)
"""Rounds after which a candidate is looked at; what comes between waits for the next look."""

MAX_ROUNDS = LOOKS[-1]

T = TypeVar("T")


def shared_confidence(candidates: int, objectives: int = 1) -> float:
    """Of every interval and verdict of a confirmation."""
    return 1 - (1 - CONFIDENCE) / (max(1, candidates) * len(LOOKS) * objectives)


def looked_at(rounds: Sequence[T]) -> list[T]:
    """The rounds up to the last look; none before the first."""
    return list(rounds[: max((look for look in LOOKS if look <= len(rounds)), default=0)])


def next_look(rounds: int) -> int | None:
    """How many rounds the next look needs; None after the last."""
    return next((look for look in LOOKS if look > rounds), None)
