"""What a user calls a run: ids, the roles of a study, files and their parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage import Database, open_database
from tests.tuner.exchange.recorded import document, fixture, made, written
from tuner.errors import UserError
from tuner.exchange.find import Runs, aligned
from tuner.exchange.run import Run, store
from tuner.records import to_columns

BASE, BEST = {"max_num_seqs": 128}, {"max_num_seqs": 8}


def add(database: Database, study_id: int, stage: Any, config: dict[str, int], seed: int) -> int:
    run = made()
    return database.add_measurement(
        study_id=study_id, stage=stage, config=config, started_at_s=float(seed), seed=seed,
        workload={"text": run.workload}, slos=run.slos, summary=run.summary, verdict=run.verdict,
        records=to_columns(run.records),
    )  # fmt: skip


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Study "s": baseline 1, search 2 and 3, a crash 4, confirmation 5 (base) and 6, 7 (best)."""
    path = str(tmp_path / "s.db")
    with open_database(path) as opened:
        study = opened.create_study("s", target={"url": "http://127.0.0.1:9"})
        add(opened, study.id, "baseline", BASE, 1)
        add(opened, study.id, "search", BEST, 2)
        add(opened, study.id, "search", {"max_num_seqs": 2}, 3)
        opened.add_measurement(
            study_id=study.id, stage="search", config={"max_num_seqs": 1}, started_at_s=4.0,
            state="failed", failure_reason="out of memory\nlog",
        )  # fmt: skip
        add(opened, study.id, "confirm", BASE, 11)
        add(opened, study.id, "confirm", BEST, 12)
        add(opened, study.id, "confirm", BEST, 11)
        result = {"answer": "improved", "baseline": {"config": BASE}, "best": {"config": BEST}}
        opened.update_study(study.id, result=result)
        opened.create_study("open")
        for name, answer in (("same", "keep_baseline"), ("torn", "undecided")):
            kept = opened.create_study(name)
            none = {"answer": answer, "baseline": {"config": BASE}, "best": {}}
            opened.update_study(kept.id, result=none)
    return path


def names(runs: list[Run]) -> list[str]:
    return [run.name for run in runs]


def test_ids_roles_and_whole_studies(database: str) -> None:
    with Runs(database) as runs:
        assert names(runs.side("3")) == ["run 3"]
        assert names(runs.side("3,1")) == ["run 3", "run 1"]
        assert names(runs.side("s:best")) == ["run 7", "run 6"]
        assert names(runs.side("s:baseline")) == ["run 5"]
        assert names(runs.whole_study("s") or []) == [f"run {i}" for i in (1, 2, 3, 5, 7, 6)]
        assert runs.whole_study("3") is None
        one = runs.one("1")
    assert one.study == "s"
    assert one.url == "http://127.0.0.1:9"
    assert one.config == BASE
    assert one.seed == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("99", "there is no run 99 in .*: it has 1 to 7"),
        ("4", "run 4 ended without a result: out of memory$"),
        ("nothing.json", "is no run: give .* or a file; studies: s, open, same, torn"),
        ("other:best", "no study named 'other'"),
        ("open:best", "has no answer yet"),
        ("open:baseline", "has no baseline"),
        ("same:best", "found nothing better than its baseline"),
        ("torn:best", "torn is undecided and names no best"),
        ("same:baseline", "its baseline has no measurement with a result"),
    ],
)
def test_what_is_not_there_is_named(database: str, text: str, says: str) -> None:
    with Runs(database) as runs, pytest.raises(UserError, match=says):
        runs.side(text)


def test_one_run_is_asked_for(database: str) -> None:
    with Runs(database) as runs, pytest.raises(UserError, match="is 2 runs; name one of them"):
        runs.one("s:best")


def test_files_need_no_database(tmp_path: Path) -> None:
    told = document("guidellm-0.5-concurrent.json")
    told["benchmarks"] *= 2
    path = written(tmp_path, told)
    with Runs(str(tmp_path / "none.db")) as runs:
        assert len(runs.side(str(path))) == 2
        assert names(runs.side(f"{path}#2")) == ["result.json#2"]
        assert runs.one(str(fixture("vllm-0.32-bench-closed.json"))).count == 12
        with pytest.raises(UserError, match="#3 is not among them"):
            runs.side(f"{path}#3")
        with pytest.raises(UserError, match="is no run"):
            runs.side("typo")


def test_pairs_have_the_same_seed_first() -> None:
    def side(*seeds: int) -> list[Run]:
        return [replace(made(), seed=seed, began_unix_s=float(i)) for i, seed in enumerate(seeds)]

    a, b = aligned(side(1, 2, 3), side(3, 9, 1))
    assert [run.seed for run in a] == [1, 3, 2]
    assert [run.seed for run in b] == [1, 3, 9]


def test_stored_run_is_the_run(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    with open_database(path) as opened:
        run_id = store(opened, made())
    with Runs(path) as runs:
        kept = runs.stored(run_id)
    assert repr(kept.records) == repr(made().records)
    assert kept.verdict == made().verdict
    assert kept.state == "ok"


def test_names_longer_than_any_run_or_file_has(database: str) -> None:
    nines = "9" * 6_000
    file = fixture("guidellm-0.8-constant.json")
    with Runs(database) as runs:
        for name, why in (
            (nines, "there is no run "),
            (f"{file}#{nines}", "is not among them"),
            ("x" * 6_000, "is no run"),
            (f"{'x' * 6_000}#1", "is no run"),
        ):
            with pytest.raises(UserError, match=why) as told:
                runs.side(name)
            assert len(str(told.value)) < 600
        assert runs.whole_study("x" * 6_000) is None
