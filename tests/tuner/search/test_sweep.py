"""A sweep on a synthetic server: when it ends before its time."""

from __future__ import annotations

import pytest

from tests.tuner.search.synthetic import (
    DEFAULTS,
    LOAD,
    FakeTarget,
    MemoryLedger,
    Silent,
    Surface,
)
from tuner.search.budget import parse_budget, plan
from tuner.search.optimize import FAILURE_LIMIT
from tuner.search.pace import Pace
from tuner.search.space import joint_space
from tuner.search.sweep import lines_of, sweep
from tuner.search.trial import Lab
from tuner.slo import SloSet
from tuner.workload import parse_workload

VALUES = "chunk_size=" + ",".join(str(value) for value in range(256, 2049, 128))


@pytest.mark.parametrize("good", [0, 2])
def test_one_failure_after_the_other_ends_it_although_some_values_worked(good: int) -> None:
    """good: measurements that go well before the server is broken for good."""
    surface, ledger, events = Surface(FakeTarget()), MemoryLedger(), Silent()
    surface.target.crashes = lambda config: surface.calls >= good
    load, budget = parse_workload(LOAD), parse_budget("15 trials")
    knobs = surface.target.knobs()
    lab = Lab(surface.target, load, SloSet(), surface, 10.0, 2.0, clock=surface.clock)
    sweep(
        lab, ledger, lines_of(joint_space(knobs, [VALUES]), [load], 5, dict(DEFAULTS)), knobs,
        repeat=1, seed=0, pace=Pace(budget, plan(budget), ledger, surface.clock), events=events,
    )  # fmt: skip
    assert [outcome.ok for outcome in ledger.outcomes] == [True] * good + [False] * FAILURE_LIMIT
    assert events.notes == [
        f"the last {FAILURE_LIMIT} trials failed; sweep ended: out of memory"
    ]  # fmt: skip
