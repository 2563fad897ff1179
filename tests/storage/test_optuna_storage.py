"""What the making of Optuna's tables is tried again for."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import optuna
import pytest
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from storage import StorageError, open_database

LOCKED = OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))
MADE = OperationalError("CREATE", {}, sqlite3.OperationalError("table studies already exists"))
TAKEN = IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE constraint failed: a.b"))


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
