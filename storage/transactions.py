"""One open database: its read and write transactions, and how it is closed.

Invariants: what was committed survives the death of the process; every fault leaves as
StorageError, one sentence. May be used from several threads; each transaction has its own session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage import location
from storage.errors import ConflictError, StorageError
from storage.faults import translated

if TYPE_CHECKING:
    import optuna


class Opened:
    """Base of Database. read_only: writing raises StorageError."""

    def __init__(self, engine: Engine, where: location.Location, *, read_only: bool) -> None:
        self._engine = engine
        self._where = where
        self._file = location.identity(where)
        self._optuna: optuna.storages.RDBStorage | None = None
        self.read_only = read_only

    @property
    def location(self) -> str:
        """Path or URL without password, for messages."""
        return self._where.text

    @property
    def path(self) -> Path | None:
        """The file, for SQLite; None for a server."""
        return self._where.path

    def optuna_storage(self) -> optuna.storages.RDBStorage:
        """Optuna's storage in this same database; its tables are its own."""
        from storage.optuna_storage import open_optuna_storage

        if self.read_only:
            raise StorageError(f"{self.location} was opened for reading only")
        if self._optuna is None:
            self._check_file()
            self._optuna = open_optuna_storage(self._where, self._check_file)
        return self._optuna

    def close(self) -> None:
        if self._optuna is not None:
            self._optuna.remove_session()
            self._optuna.engine.dispose()
            self._optuna = None
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    @property
    def file_gone(self) -> bool:
        """Whether the file that was opened is no longer the one at its path."""
        return location.identity(self._where) != self._file

    def _check_file(self) -> None:
        """Before every write: what goes into a file without a name is lost when it is closed."""
        if self.file_gone:
            raise StorageError(
                f"the database {self.location} cannot be written: its file was deleted, moved or "
                "replaced after it was opened"
            )

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with translated(self.location, "read"), Session(self._engine) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        if self.read_only:
            raise StorageError(f"{self.location} was opened for reading only")
        self._check_file()
        engine = self._engine.execution_options(**{location.WRITES: True})
        with translated(self.location, "written"):
            try:
                with Session(engine, expire_on_commit=False) as session, session.begin():
                    yield session
            except IntegrityError as fault:
                raise _integrity(fault, self.location) from fault


def _integrity(fault: IntegrityError, where: str) -> StorageError:
    text = str(fault.orig).lower()
    if "foreign key" in text:
        return ConflictError(f"the study, measurement or target referred to is not in {where}")
    if "unique" in text:
        return ConflictError(f"what was to be stored stands in {where} already")
    return StorageError(f"a row for {where} breaks the schema: {' '.join(str(fault.orig).split())}")
