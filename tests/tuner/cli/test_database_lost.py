"""A database that is locked or taken away while a command measures: one sentence, exit code 2."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import open_database
from tests.tuner.fake_engine import FakeEngine
from tests.tuner.fake_server import Reply
from tuner.cli.main import main

pytestmark = pytest.mark.timeout(120)

FAST = [
    "--workload", "prompt=16,output=4,concurrency=8", "--duration", "500ms", "--warmup", "0s",
    "--quiet",
]  # fmt: skip
KNOB = ["--knob", "chunk_size=512,2048"]
ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
COMMANDS = {
    "bench": [],
    "sweep": [*KNOB, "--repeat", "2"],
    "optimize": [*KNOB, "--slo", "tpot_p95<25ms", "--budget", "6 trials", "--sampler", "tpe"],
    "verify": ["--knob", "chunk_size=512", "--pairs", "3"],
}
FIRST_STORED = [(name, 0 if name == "bench" else 1) for name in COMMANDS]


class Meddled(FakeEngine):
    """meddle: called once, in the middle of the measurement that follows `after` stored ones."""

    def __init__(self, database: Path, after: int, meddle: Callable[[], None]) -> None:
        super().__init__(knobs=dict(ORIGINAL))
        self.database, self.after, self.meddle = database, after, meddle
        self.is_meddled = False

    def _script(self, number: int, body: dict[str, Any]) -> Reply:
        if not self.is_meddled and number > 20 and num_stored(self.database) >= self.after:
            self.is_meddled = True
            self.meddle()
        return super()._script(number, body)


def num_stored(database: Path) -> int:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = int(connection.execute("SELECT count(*) FROM measurement").fetchone()[0])
    connection.close()
    return found


@pytest.fixture
def locker(tmp_path: Path) -> Iterator[Callable[[], None]]:
    held: list[sqlite3.Connection] = []

    def lock() -> None:
        held.append(
            sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
        )
        held[0].execute("BEGIN IMMEDIATE")

    yield lock
    for connection in held:
        connection.close()


@pytest.mark.parametrize(("command", "after"), FIRST_STORED)
def test_a_lock_held_too_long(
    command: str,
    after: int,
    tmp_path: Path,
    locker: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("storage.location.BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "x.db"
    with Meddled(path, after, locker) as server:
        words = [command, "--url", server.url, *FAST, *COMMANDS[command]]
        assert main([*words, "--database", str(path)]) == 2
        assert server.knobs == ORIGINAL
    shown = capsys.readouterr()
    assert "kept as run" not in shown.out
    assert_one_sentence(shown.err, command, "another process has held its lock for too long")
    with open_database(path, read_only=True) as database:
        assert len(database.list_measurements()) == after


@pytest.mark.parametrize(("command", "after"), FIRST_STORED)
def test_a_file_that_is_gone(
    command: str, after: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.db"

    def delete() -> None:
        for file in tmp_path.glob("x.db*"):
            file.unlink()

    with Meddled(path, after, delete) as server:
        words = [command, "--url", server.url, *FAST, *COMMANDS[command]]
        assert main([*words, "--database", str(path)]) == 2
        assert server.knobs == ORIGINAL
    shown = capsys.readouterr()
    assert "kept as run" not in shown.out
    assert_one_sentence(shown.err, command, "deleted, moved or replaced after it was opened")
    assert not path.exists()


def assert_one_sentence(said: str, command: str, why: str) -> None:
    """And which finished measurement is lost with it."""
    (line,) = said.strip().splitlines()
    assert line.startswith(f"tuner {command}: the database ")
    assert why in line
    assert line.endswith("is not kept")


def test_ctrl_c_in_a_sweep_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.db"

    def interrupted(*_: object, **__: object) -> None:
        path.unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.cli.run_sweep.sweep", interrupted)
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        words = ["sweep", "--url", server.url, *KNOB, "--database", str(path)]
        assert main(words) == 2
        assert server.knobs == ORIGINAL
    said = capsys.readouterr().err
    assert "kept" not in said
    assert "deleted, moved or replaced" in said
