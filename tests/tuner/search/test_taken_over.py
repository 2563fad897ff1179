"""What a kill cuts through is finished: every trial that was begun, in every stage, whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.search.synthetic import FakeTarget, Surface
from tests.tuner.search.test_resume import Sitting, keys
from tuner.search.goal import is_complete
from tuner.search.objective import CAPACITY, Objective
from tuner.search.trials import trials_of

LOADS = ("prompt=64,output=8,rate=10", "prompt=900,output=8,rate=10")
TRIALS = 10


@pytest.fixture
def sitting(tmp_path: Path) -> Iterator[Sitting]:
    """What answers in time up to 18 requests per second, whatever the settings."""
    surface = Surface(
        FakeTarget(), ttft=lambda config, load: 0.2 if load.arrivals.level <= 18 else 0.9,
        rate=lambda config, load: 20.0, by_load=True,
    )  # fmt: skip
    with open_database(tmp_path / "s.db") as database:
        yield Sitting(database, surface)


@pytest.mark.parametrize("stop_at", range(2, 2 * TRIALS + 1, 2))
def test_between_two_loads(sitting: Sitting, stop_at: int) -> None:
    """Of each of the trials; those of the confirmation come last."""
    sitting.surface.interrupt_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        sitting.run(TRIALS, loads=LOADS)
    done = sitting.run(TRIALS, loads=LOADS)
    trials = trials_of(done.ledger.outcomes)
    assert [len(trial.parts) for trial in trials] == [2] * TRIALS
    assert trials[-1].stage == "confirm"


@pytest.mark.parametrize("stop_at", [2, 9, 17, 25, 33])
def test_between_two_levels_of_a_capacity(sitting: Sitting, stop_at: int) -> None:
    objective = Objective(CAPACITY)
    sitting.surface.interrupt_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        sitting.run(TRIALS, objective=objective)
    done = sitting.run(TRIALS, objective=objective)
    trials = trials_of(done.ledger.outcomes)
    assert len(trials) <= TRIALS
    assert all(is_complete(done.goal, trial) for trial in trials)
    levels = [str(outcome.workload) for outcome in done.ledger.outcomes]
    measured = [*zip(keys(done), levels, strict=True)]
    assert len(set(measured)) == len(measured)
