"""What the making of Optuna's tables is tried again for, and what ends the use of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from storage import StorageError, open_database

LOCKED = OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))
MADE = OperationalError("CREATE", {}, sqlite3.OperationalError("table studies already exists"))
TAKEN = IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE constraint failed: a.b"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """By another connection, as by another process."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize(("fault", "tries"), [(LOCKED, 1), (MADE, 2), (TAKEN, 2)])
def test_only_what_another_process_made_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: SQLAlchemyError, tries: int
) -> None:
    """A lock has had its whole timeout by then: ten of them would hold a start for minutes."""
    made, tried = optuna.storages.RDBStorage, []

    def failing_once(*given: object, **named: object) -> object:
        tried.append(given)
        if len(tried) == 1:
            raise fault
        return made(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(optuna.storages, "RDBStorage", failing_once)
    with open_database(tmp_path / "slotune.db") as database:
        if fault is LOCKED:
            with pytest.raises(StorageError, match="lock for too long"):
                database.optuna_storage()
        else:
            database.optuna_storage()
    assert len(tried) == tries


def test_a_lock_held_too_long_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna's own fault speaks of invalid data. What was stored before survives."""
    monkeypatch.setattr("storage.location.BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "slotune.db"
    with open_database(path) as database:
        study = optuna.create_study(storage=database.optuna_storage(), study_name="s")
        study.set_user_attr("before", 1)
        with locked(path):
            for write in (lambda: study.set_user_attr("during", 2), study.ask):
                with pytest.raises(StorageError, match=r"slotune.db cannot be written: .* lock"):
                    write()
        study.ask()
        assert study.user_attrs == {"before": 1}


def test_a_lock_while_it_is_opened_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables are there, but the row that tells their version."""
    monkeypatch.setattr("storage.location.BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "slotune.db"
    with open_database(path) as database:
        database.optuna_storage()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM version_info")
    connection.close()
    with (
        open_database(path) as database,
        locked(path),
        pytest.raises(StorageError, match=r"opened for the search: .* lock for too long"),
    ):
        database.optuna_storage()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_is_written_no_more(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "slotune.db"
    with open_database(path) as database:
        study = optuna.create_study(storage=database.optuna_storage(), study_name="s")
        for file in tmp_path.iterdir():
            file.rename(tmp_path / f"moved-{file.name}")
        if replaced:
            open_database(path).close()
        with pytest.raises(StorageError, match="deleted, moved or replaced"):
            study.set_user_attr("after", 1)
        with pytest.raises(StorageError, match="deleted, moved or replaced"):
            database.create_study("s")
        assert path.exists() is replaced


def test_optunas_tables_are_not_made_in_a_file_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "slotune.db"
    with open_database(path) as database:
        path.unlink()
        with pytest.raises(StorageError, match="deleted, moved or replaced"):
            database.optuna_storage()
    assert not path.exists()
