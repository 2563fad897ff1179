"""A row that was changed by hand is told by its name, in one sentence, whoever meets it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from storage import StorageError, open_database
from tuner.cli.main import main
from tuner.workload import parse_workload

Capture = pytest.CaptureFixture[str]
NOWHERE = ["--url", "http://127.0.0.1:9"]
LOAD = parse_workload("prompt=16,output=4,concurrency=2").as_dict()


def damaged(folder: Path, change: str, **fields: object) -> list[str]:
    """A database with one study and one run, changed; as an option."""
    path = folder / "x.db"
    with open_database(path) as database:
        study = database.create_study("s", **fields)  # type: ignore[arg-type]
        database.add_measurement(
            study_id=study.id, stage="search", config={}, started_at_s=1.0, state="ok",
            summary={"window_s": [0.0, 1.0], "lag_p99_s": 0.0}, workload=LOAD,
            records={"sent_s": [0.0]},
        )  # fmt: skip
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(change)
    connection.close()
    return ["--database", str(path)]


def told(capsys: Capture) -> str:
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    "words", [["runs", "1"], ["rejudge", "1", "--slo", "ttft_p95<1s"], ["export", "1"],
              ["compare", "1", "1"]],
)  # fmt: skip
def test_a_summary_without_its_window(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    database = damaged(tmp_path, "UPDATE measurement SET summary = '{}'")
    assert main([*words, *database]) == 2
    assert "run 1 is damaged in the database: it lacks 'window_s'" in told(capsys)


def test_a_summary_without_its_window_in_a_report(tmp_path: Path, capsys: Capture) -> None:
    space = {"axes": [], "objectives": ["maximize output_tps"]}
    database = damaged(tmp_path, "UPDATE measurement SET summary = '{}'", space=space)
    assert main(["report", "s", *database]) == 2
    assert "run 1 is damaged in the database" in told(capsys)


@pytest.mark.parametrize("words", [["runs"], ["runs", "1"], ["runs", "--study", "s"]])
def test_a_time_that_is_text(words: list[str], tmp_path: Path, capsys: Capture) -> None:
    database = damaged(tmp_path, "UPDATE measurement SET started_at_s = 'noon'")
    assert main([*words, *database]) == 2
    assert "run 1 is damaged in the database: started_at_s is 'noon'" in told(capsys)


@pytest.mark.parametrize("command", ["sweep", "optimize"])
@pytest.mark.parametrize("change", ["workload = '{}'", "space = json_set(space, '$.axes', 5)"])
def test_a_study_that_is_gone_on_with(
    command: str, change: str, tmp_path: Path, capsys: Capture
) -> None:
    sweeps: dict[str, object] = {"axes": [], "load_knobs": []}
    goal = {"axes": [], "objectives": ["maximize output_tps"]}
    budget = {"points": 2, "repeat": 1, "window_s": 1.0, "warmup_s": 0.0, "text": "9 trials"}
    database = damaged(
        tmp_path, f"UPDATE study SET {change}", workload=LOAD, budget=budget,
        space=sweeps if command == "sweep" else goal,
    )  # fmt: skip
    assert main([command, "--study", "s", *NOWHERE, *database]) == 2
    assert "study 's' is damaged in the database: " in told(capsys)


def test_whole_numbers_are_times_and_null_is_nothing(tmp_path: Path) -> None:
    damaged(tmp_path, "UPDATE measurement SET started_at_s = 7, summary = NULL")
    with open_database(tmp_path / "x.db", read_only=True) as database:
        (row,) = database.list_measurements()
        assert (row.started_at_s, row.summary) == (7, None)


def test_a_required_value_that_is_gone(tmp_path: Path) -> None:
    damaged(tmp_path, "UPDATE measurement SET config = 'null'")
    with (
        open_database(tmp_path / "x.db", read_only=True) as database,
        pytest.raises(StorageError, match="run 1 is damaged in the database: config is None"),
    ):
        database.list_measurements()
