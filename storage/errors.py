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
