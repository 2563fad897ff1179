"""The files that commands write: whether a path may be one, and writing it.

Invariant: no command replaces a database, what it reads, or what it writes itself; and a file is
written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tuner.errors import UserError

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite keeps in files of its own beside a database."""

_SQLITE_MAGIC = b"SQLite format 3\0"


def check_output(
    option: str,
    path: str,
    database: str | None = None,
    own: Iterable[str | Path | None] = (),
    **taken: str | None,
) -> None:
    """UserError for a file that cannot be written, or that holds something else: a database, what
    the command reads or writes itself (own), or what another option names (taken).

    To be asked before anything is measured.
    """
    target = Path(path)
    try:
        held = _held_by(target, database, own, taken)
        if held:
            raise UserError(f"{option} {path}: this file is {held}; name another")
        if not Path(os.path.realpath(target)).parent.is_dir():
            raise UserError(f"{option} {path} cannot be written: there is no folder of that name")
        if target.is_dir():
            raise UserError(f"{option} {path} cannot be written: this is a folder")
        if not target.exists() or target.is_file():
            _try_to_make(_part_of(target))
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written: {error.strerror or error}") from error


def write_whole(path: Path, write_to: Callable[[Path], object]) -> None:
    """The whole file or none: written beside it, then put in its place. Raises UserError.

    A device or a pipe (/dev/stdout) is written to, and never replaced; a link stays one.
    """
    try:
        if path.exists() and not path.is_file():
            write_to(path)
            return
        part = _part_of(path)
        try:
            write_to(part)
            os.replace(part, os.path.realpath(path))
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Raises UserError."""
    write_whole(
        path, lambda part: part.write_text(text, encoding="utf-8", errors="backslashreplace")
    )


def _try_to_make(part: Path) -> None:
    if not part.exists():  # else somebody writes it now
        part.touch()
        part.unlink()


def _part_of(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    return real.with_name(f".{real.name}.part")


def _held_by(
    target: Path,
    database: str | None,
    own: Iterable[str | Path | None],
    taken: dict[str, str | None],
) -> str:
    """What else the file is; "" for nothing."""
    kept = _file_of(database)
    if kept is not None and any(_same(target, Path(f"{kept}{end}")) for end in ("", *BESIDE)):
        return "the database" if _same(target, kept) else "part of the database"
    if _is_database(target):
        return "a database"
    if any(target.name.endswith(end) and _is_database(_without(target, end)) for end in BESIDE):
        return "part of a database"
    if any(given is not None and _same(target, Path(given)) for given in own):
        return "one that this command reads or writes itself"
    for name, other in taken.items():
        if other is not None and _same(target, Path(other)):
            return f"that of --{name.replace('_', '-')}"
    return ""


def _file_of(database: str | None) -> Path | None:
    from storage import location

    path = location.parse(database).path if database is not None else None
    return path and Path(os.path.realpath(path))


def _without(target: Path, end: str) -> Path:
    return Path(str(target).removesuffix(end))


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def _same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return one.exists() and other.exists() and one.samefile(other)
