"""Where the database is: a path or URL in, a configured SQLAlchemy engine out.

Invariants: a read-only engine cannot create, change or lock anything (SQLite `mode=ro`, PostgreSQL
read-only transactions); a writing SQLite engine uses WAL, so that readers never wait for it, and
takes its lock when a write transaction begins, so that it never fails half-way with "locked".
"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from storage.errors import StorageError

DEFAULT_PATH = "slotune.db"
BUSY_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 5.0
"""Readers wait only for a database that is being made, changed or restored: a page must say so
soon."""

WRITES = "slotune_writes"
_SQLITE_MAGIC = b"SQLite format 3\0"
_RIGHT = "give a file path, sqlite:///PATH or postgresql://USER@HOST/NAME"


@dataclass(frozen=True, slots=True)
class Location:
    """url names the driver; path is the SQLite file, None for a server; text is for messages."""

    url: URL
    path: Path | None

    @property
    def text(self) -> str:
        return str(self.path) if self.path else self.url.render_as_string(hide_password=True)


def parse(url_or_path: str | os.PathLike[str] | None) -> Location:
    """Raises StorageError for anything that is neither a path nor a usable URL."""
    text = os.fspath(url_or_path) if url_or_path is not None else DEFAULT_PATH
    if not text.strip():
        raise StorageError(f"the database is an empty text: {_RIGHT}")
    if not _is_text(text):
        raise StorageError(
            f"the database {text!r:.200} is named by bytes that are no text: {_RIGHT}"
        )
    if "://" not in text:
        if text.startswith(("sqlite:", "postgresql:", "postgres:", ":memory:")):
            raise StorageError(f"{text!r} is not a database URL: {_RIGHT}")
        return _file(Path(text))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as fault:
        raise StorageError(f"the database URL is malformed: {_RIGHT}") from fault
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        if not url.database or url.database == ":memory:":
            raise StorageError(f"{text!r} names no file: {_RIGHT}")
        return _file(Path(url.database))
    if backend in ("postgresql", "postgres"):
        if not url.host and not url.query.get("host") and not url.database:
            raise StorageError(f"{text!r} names no server: {_RIGHT}")
        return Location(url.set(drivername="postgresql+psycopg"), None)
    raise StorageError(f"the database kind {backend!r} is not supported: {_RIGHT}")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _file(path: Path) -> Location:
    full = path.expanduser().absolute()
    return Location(URL.create("sqlite", database=str(full)), full)


def connect(location: Location, *, read_only: bool) -> Engine:
    """An engine that has not connected yet. Raises StorageError for a path that cannot be one."""
    if location.path is None:
        return _server_engine(location, read_only)
    _check_path(location, read_only)
    options: dict[str, Any] = {"poolclass": NullPool} if read_only else {}
    engine = create_engine(
        location.url, creator=lambda: _sqlite(location.path, read_only), **options, **_json()
    )
    event.listen(engine, "begin", _begin)
    return engine


def check(location: Location) -> None:
    """Raises StorageError for a path that can be no database; a file may still be to come."""
    path = location.path
    if path is None:
        return
    try:
        if path.is_dir():
            raise StorageError(f"the database {path} is a directory: give a file name in it")
        if not path.parent.is_dir():
            raise StorageError(
                f"the database {path} cannot be opened: the directory {path.parent} does not exist"
            )
        if path.exists() and not _may_be_sqlite(path):
            raise StorageError(
                f"the database {path} cannot be opened: the file is not an SQLite database"
            )
    except OSError as fault:
        raise StorageError(
            f"the database {path} cannot be opened: {fault.strerror or fault}"
        ) from fault


def _may_be_sqlite(path: Path) -> bool:
    """Whether it begins as SQLite's files do; an empty one becomes a database when it is used."""
    if not path.is_file():  # a device or pipe, which would keep the reader waiting
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) in (b"", _SQLITE_MAGIC)


def identity(location: Location) -> tuple[int, int] | None:
    """(device, inode) of the file at the path now; None where there is none, or for a server."""
    if location.path is None:
        return None
    try:
        found = location.path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_path(location: Location, read_only: bool) -> None:
    check(location)
    if read_only and location.path is not None and not location.path.exists():
        raise StorageError(
            f"the database {location.path} does not exist: the first command that stores "
            "something makes it"
        )


def _server_engine(location: Location, read_only: bool) -> Engine:
    arguments: dict[str, Any] = {"connect_timeout": 5}
    if read_only:
        lock_ms = int(READ_TIMEOUT_S * 1000)
        arguments["options"] = f"-c default_transaction_read_only=on -c lock_timeout={lock_ms}"
    try:
        return create_engine(location.url, connect_args=arguments, pool_pre_ping=True, **_json())
    except ImportError as fault:
        raise StorageError(
            "PostgreSQL needs the driver psycopg: pip install 'slotune[postgres]'"
        ) from fault


def _sqlite(path: Path | None, read_only: bool) -> sqlite3.Connection:
    if read_only:
        return _sqlite_reader(f"file:{quote(str(path))}", Path(str(path)))
    connection = sqlite3.connect(
        str(path), timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        _use_wal(connection)
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _sqlite_reader(uri: str, path: Path) -> sqlite3.Connection:
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "uri": True}
    connection: sqlite3.Connection
    connection = sqlite3.connect(f"{uri}?mode=ro", timeout=READ_TIMEOUT_S, **options)
    try:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        # Without a -wal file nobody writes; a directory we may not write to then lacks the -shm
        # file that WAL readers share, and only the immutable mode can read.
        if Path(f"{path}-wal").exists() or os.access(path.parent, os.W_OK):
            raise
        connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", **options)
        connection.execute("PRAGMA query_only=ON")
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """WAL stays in the file. Turning it on does not honour the busy timeout, hence the loop."""
    give_up_s = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as fault:
            if "locked" not in str(fault) or time.monotonic() > give_up_s:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _json() -> dict[str, Any]:
    """Non-finite numbers become null: PostgreSQL refuses NaN in JSON, and readers expect none."""
    return {
        "json_serializer": lambda value: orjson.dumps(
            value, default=str, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        ).decode(),
        "json_deserializer": _object,
    }


def _object(text: Any) -> dict[str, Any] | None:
    """A stored JSON column: an object or null; StorageError for a row that was damaged."""
    try:
        value = orjson.loads(text)
    except ValueError:
        value = text
    if value is not None and not isinstance(value, dict):
        raise StorageError(
            f"the database holds a damaged row: {text!r:.60} stands where a JSON object should; "
            "put a copy of the file back, or delete that row"
        )
    return value


def history_beside(url_or_path: str | os.PathLike[str]) -> str:
    """Where the metric history of a database lies: a file of its own beside it, so that neither's
    writes ever wait for the other's; on a server, which locks rows, in the database itself."""
    path = parse(url_or_path).path
    if path is None:
        return os.fspath(url_or_path)
    return str(path.with_name(f"{path.stem}-history{path.suffix}"))


def only_history(url_or_path: str | os.PathLike[str]) -> bool:
    """Whether a history is kept beside a database that no run has made yet."""
    path = parse(url_or_path).path
    if path is None or os.path.exists(path):  # False too for a name longer than any file has
        return False
    return os.path.exists(history_beside(path))
