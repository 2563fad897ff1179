"""Turns the database driver's faults into one sentence each; no SQL reaches a user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from storage.errors import StorageError

_SENTENCES = (
    ("database or disk is full", "the disk is full"),
    ("no space left", "the disk is full"),
    ("disk i/o error", "the disk is full or broken"),
    ("attempt to write a readonly database", "it is not writable"),
    ("read-only transaction", "it was opened for reading only"),
    ("unable to open database file", "its file or directory may not be read or written"),
    ("lock timeout", "another process has held its lock for too long"),
    ("database is locked", "another process has held its lock for too long"),
    ("file is not a database", "the file is not an SQLite database"),
    ("malformed", "the file is damaged"),
    ("no such table", "it holds no slotune tables"),
    ("password authentication failed", "the server refused the user or password"),
    ("connection refused", "no server answers there"),
    ("does not exist", "the server does not know that database or user"),
    ("timeout", "the server did not answer in time"),
    ("could not translate host name", "the server's name is unknown"),
    ("failed to resolve host", "the server's name is unknown"),
)


def sentence(location: str, verb: str, fault: BaseException) -> str:
    """`the database X cannot be <verb>: why`."""
    origin = fault.orig if isinstance(fault, DBAPIError) and fault.orig else fault
    text = " ".join(str(origin).split())
    lowered = text.lower()
    why = next((said for sign, said in _SENTENCES if sign in lowered), text)
    return f"the database {location} cannot be {verb}: {why}"


@contextmanager
def translated(location: str, verb: str) -> Iterator[None]:
    """Raises StorageError in place of any fault of SQLAlchemy or its driver."""
    try:
        yield
    except SQLAlchemyError as fault:
        raise StorageError(sentence(location, verb, fault)) from fault
