"""Several processes that share one study: whose turn it is, who has claimed what, who is alive.

A lock lives exactly as long as the process that holds it, also under kill -9: a file lock beside an
SQLite database (one machine), an advisory lock in PostgreSQL (any machines). One such lock is the
*turn*, inside which claims are read and written; each worker holds another for its life, so that
the dead are known at once and without clocks. Invariant: of two workers that want one unit of work,
one gets it, and what a dead one had claimed is free again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import optuna

_UNIT, _JOINED, _ALONE = "unit ", "joined", "alone"
DONE = "done"

_MOST_NAME_BYTES = 200
"""Of a database's name in those of its locks, which must be shorter than a file's name may be."""


class Locks(Protocol):
    """Named locks. hold keeps one until close; held tells whether somebody alive has it."""

    def turn(self) -> contextlib.AbstractContextManager[None]: ...

    def hold(self, name: str) -> None: ...

    def held(self, name: str) -> bool: ...

    def close(self) -> None: ...


class Workers:
    """This process among those that work on the study `name`; storage None: it is alone.

    place: how many had joined before it, in all sittings.
    """

    def __init__(self, name: str, storage: optuna.storages.BaseStorage | None = None) -> None:
        self.me = uuid.uuid4().hex[:12]
        self._locks = _locks_of(storage, name)
        self._locks.hold(self.me)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings(), self.turn():
            warnings.simplefilter("ignore")
            self._board = optuna.create_study(
                study_name=_board_name(name), storage=storage, load_if_exists=True
            )
            joined = list(self._board.user_attrs.get(_JOINED, []))
            self.place = len(joined)
            for worker in joined:
                self.alive(worker)  # removes what a dead one has left
            self._board.set_user_attr(_JOINED, [*joined, self.me])

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """Only one worker of the study is inside at a time; not to be nested."""
        return self._locks.turn()

    def alive(self, worker: str) -> bool:
        return worker == self.me or self._locks.held(worker)

    def others_alive(self) -> bool:
        """Whether somebody else works on the study now."""
        return any(self._others(worker) for worker in self._board.user_attrs.get(_JOINED, []))

    def claim(self, unit: str, members: list[Any]) -> list[Any] | None:
        """Inside a turn: take a unit of work that is nobody's, mine already, or a dead one's.

        Returns what it consists of (as first claimed), or None when it is another's or done.
        """
        known = self._claims().get(unit)
        if known is not None:
            if known["worker"] == DONE or self._others(known["worker"]):
                return None
            members = known["members"]
        self._board.set_user_attr(_UNIT + unit, {"worker": self.me, "members": members})
        return members

    def finish(self, unit: str) -> None:
        """The unit is done and never to be claimed again."""
        known = self._claims().get(unit, {"members": []})
        self._board.set_user_attr(_UNIT + unit, known | {"worker": DONE})

    def is_done(self, unit: str) -> bool:
        return bool(self._claims().get(unit, {}).get("worker") == DONE)

    def of_others(self) -> dict[str, list[Any]]:
        """Units that others, alive, are at work on."""
        return {
            unit: claim["members"]
            for unit, claim in self._claims().items()
            if claim["worker"] != DONE and self._others(claim["worker"])
        }

    def close(self) -> None:
        self._locks.close()

    def _others(self, worker: str) -> bool:
        return worker != self.me and self.alive(worker)

    def _claims(self) -> dict[str, dict[str, Any]]:
        return {
            key.removeprefix(_UNIT): value
            for key, value in self._board.user_attrs.items()
            if key.startswith(_UNIT)
        }


@contextlib.contextmanager
def alone(name: str, storage: optuna.storages.BaseStorage | None) -> Iterator[bool]:
    """Whether nobody else alive is inside for the study `name`; who comes second is not."""
    locks = _locks_of(storage, name)
    try:
        with locks.turn():
            first = not locks.held(_ALONE)
            if first:
                locks.hold(_ALONE)
        yield first
    finally:
        locks.close()


def anyone_at(name: str, storage: optuna.storages.BaseStorage) -> bool:
    """Whether a process that lives works on the study `name`."""
    locks = _locks_of(storage, name)
    try:
        board = optuna.load_study(study_name=_board_name(name), storage=storage)
        joined = list(board.user_attrs.get(_JOINED, []))
    except KeyError:  # no search of that name has begun
        joined = []
    try:
        with locks.turn():
            return any(locks.held(holder) for holder in (_ALONE, *joined))
    finally:
        locks.close()


def _board_name(study: str) -> str:
    return f"{study} claims"


def _locks_of(storage: optuna.storages.BaseStorage | None, name: str) -> Locks:
    engine: Any = getattr(storage, "engine", None)
    if engine is None:
        return _Alone()
    if engine.dialect.name == "postgresql":
        return _AdvisoryLocks(engine, name)
    return _FileLocks(Path(engine.url.database), name)


class _Alone:
    """No one to wait for."""

    def turn(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def hold(self, name: str) -> None: ...

    def held(self, name: str) -> bool:
        return False

    def close(self) -> None: ...


class _FileLocks:
    """Empty hidden files beside the database; those of the dead are removed by who meets them. The
    turn's own stays: two processes could hold a lock whose file is removed."""

    def __init__(self, database: Path, study: str) -> None:
        name = database.name
        if len(os.fsencode(name)) > _MOST_NAME_BYTES:
            name = f"{zlib.crc32(name.encode()):08x}"
        self._stem = database.with_name(f".{name}-{zlib.crc32(study.encode()):08x}")
        self._mine: list[tuple[int, Path]] = []

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        descriptor = os.open(self._path("turn"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def hold(self, name: str) -> None:
        path = self._path(name)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._mine.append((descriptor, path))

    def held(self, name: str) -> bool:
        path = self._path(name)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)

    def close(self) -> None:
        while self._mine:
            descriptor, path = self._mine.pop()
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _path(self, name: str) -> Path:
        return Path(f"{self._stem}.{name}.lock")


class _AdvisoryLocks:
    """On one connection of our own; the server frees them when it breaks."""

    def __init__(self, engine: Any, study: str) -> None:
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._connection.detach()  # closed for good by close(), never handed to somebody else
        self._study = study

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        self._call("pg_advisory_lock", "turn")
        try:
            yield
        finally:
            self._call("pg_advisory_unlock", "turn")

    def hold(self, name: str) -> None:
        self._call("pg_advisory_lock", name)

    def held(self, name: str) -> bool:
        if self._call("pg_try_advisory_lock", name):
            self._call("pg_advisory_unlock", name)
            return False
        return True

    def close(self) -> None:
        self._connection.close()

    def _call(self, function: str, name: str) -> Any:
        key = zlib.crc32(f"{self._study} {name}".encode())
        return self._connection.exec_driver_sql(f"SELECT {function}({key})").scalar()
