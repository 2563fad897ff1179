"""The faults of this room that its callers are expected to catch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StorageError(Exception):
    """The database cannot be opened, read or written; the message is one sentence for a person."""


class ConflictError(StorageError):
    """A row's key is taken, or what it refers to is gone, perhaps since a moment ago by another
    process."""


class StudyExistsError(StorageError):
    """The name of a new study is taken, perhaps since a moment ago by another process."""


@contextmanager
def not_kept(what: str) -> Iterator[None]:
    """Around the storing of what has been measured: a fault then says that it is lost, too."""
    try:
        yield
    except StorageError as fault:
        raise StorageError(f"{fault}; {what} is not kept") from fault


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Around the reading of a row's own words: what was damaged by hand is one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise StorageError(f"{what} is damaged in the database: {_why(fault)}") from fault


def _why(fault: Exception) -> str:
    return f"it lacks {fault}" if isinstance(fault, KeyError) else " ".join(str(fault).split())
