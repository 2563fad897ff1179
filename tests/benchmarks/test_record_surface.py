"""The recorder of surfaces, its runs made up: what state its study ends in, and how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from benchmarks import record_surface
from storage import open_database
from tests.tuner.search.synthetic import FakeTarget
from tuner.measure import measure
from tuner.search.ledger import StudyLedger
from tuner.search.trial import Lab, Outcome
from tuner.search.trials import Config
from tuner.slo import parse_slos
from tuner.targets.base import Target
from tuner.workload import parse_workload

GRID = record_surface.GRIDS["slotune"]
POINTS = 75


class Trials:
    """Failed ones; the last of them meets Ctrl-C instead."""

    def __init__(self, until: int) -> None:
        self.until, self.made = until, 0

    def __call__(self, lab: Lab, config: Config, *, stage: str, seed: int) -> Outcome:
        self.made += 1
        if self.made == self.until:
            raise KeyboardInterrupt
        return Outcome(
            "search", config, seed, started_at_s=float(self.made), state="failed",
            failure_kind="configuration", failure_reason="no",
        )  # fmt: skip


def test_the_study_is_stopped_until_every_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = parse_workload("prompt=16,output=4,concurrency=2")
    lab = Lab(cast("Target", FakeTarget()), load, parse_slos(["ttft_p95<1s"]), measure, 1.0, 0.0)
    with open_database(tmp_path / "s.db") as database:
        study = database.create_study("surface", workload=load.as_dict(), state="running")

        def state() -> str:
            found = database.get_study("surface")
            assert found is not None
            return found.state

        monkeypatch.setattr(record_surface, "run_trial", Trials(until=10))
        with pytest.raises(KeyboardInterrupt):
            record_surface.record(lab, database, study, GRID, repeat=1)
        assert state() == "stopped"
        rest = Trials(until=0)
        monkeypatch.setattr(record_surface, "run_trial", rest)
        record_surface.record(lab, database, study, GRID, repeat=1)
        assert state() == "done"
        assert rest.made == POINTS - 9


def test_a_server_that_restarts_has_all_runs_of_a_point_in_a_row(tmp_path: Path) -> None:
    grid = record_surface.GRIDS["vllm"]
    slos, load = parse_slos(["ttft_p95<1s"]), parse_workload("prompt=16,output=4,concurrency=2")
    with open_database(tmp_path / "s.db") as database:
        study = database.create_study("surface", workload=load.as_dict(), state="running")
        order = record_surface.left(StudyLedger(database, study, slos, load), grid, 2)
    assert [seed for seed, _ in order] == [0, 1] * 30
    assert all(order[at][1] == order[at + 1][1] for at in range(0, len(order), 2))
    assert len({tuple(config.items()) for _, config in order}) == 30


def test_a_file_holds_the_surface_of_one_target(tmp_path: Path) -> None:
    load = parse_workload("prompt=16,output=4,concurrency=2")
    lab = Lab(
        cast("Target", FakeTarget(kind="vllm")), load, parse_slos(["ttft_p95<1s"]), measure, 1, 0
    )
    with open_database(tmp_path / "s.db") as database:
        database.create_study("surface", target={"kind": "slotune"}, workload=load.as_dict())
        with pytest.raises(SystemExit, match="holds a surface of slotune"):
            record_surface._study(database, record_surface.GRIDS["vllm"], lab, {})
