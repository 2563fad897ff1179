"""What is measured first after the baseline is what its diagnosis proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.search.budget import parse_budget
from tuner.search.optimize import optimize
from tuner.search.trials import Config


def swept(levers: Sequence[tuple[str, str]]) -> tuple[list[Config], list[list[str]]]:
    """(the single-variable points in order of time, the stages measured when levers were asked)."""
    search = search_on(Surface(FakeTarget()), budget=parse_budget("12 trials"))
    asked: list[list[str]] = []

    def of_the_baseline() -> Sequence[tuple[str, str]]:
        asked.append([outcome.stage for outcome in search.ledger.outcomes])
        return levers

    optimize(replace(search, levers=of_the_baseline))
    points = [outcome.config for outcome in search.ledger.outcomes if outcome.stage == "sweep"]
    return points, asked


def turned(point: Config) -> dict[str, bool]:
    """Knob that differs from the baseline → whether it is higher."""
    return {
        name: float(value) > float(DEFAULTS[name])
        for name, value in point.items()
        if value != DEFAULTS[name]
    }


@pytest.mark.parametrize(
    ("levers", "first", "second"),
    [
        ([("max_num_seqs", "down"), ("chunk_size", "up")],
         {"max_num_seqs": False}, {"chunk_size": True}),
        ([("max_num_seqs", "up"), ("gpu_memory_utilization", "down")],
         {"max_num_seqs": True}, {"gpu_memory_utilization": False}),
        ([("more replicas", "do")], {"chunk_size": False}, {"chunk_size": False}),
        ([], {"chunk_size": False}, {"chunk_size": False}),
    ],
)  # fmt: skip
def test_levers_are_turned_first_in_their_order(
    levers: list[tuple[str, str]], first: dict[str, bool], second: dict[str, bool]
) -> None:
    points, asked = swept(levers)
    assert [turned(point) for point in points[:2]] == [first, second]
    assert asked == [["baseline", "baseline"]]
