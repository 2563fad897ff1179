"""Opening: what cannot be opened says why in one sentence; readers change nothing."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from storage import StorageError, open_database
from storage.schema import VERSION_TABLE
from tests.storage.conftest import free_port


def fault(where: str | Path, *, read_only: bool = False) -> str:
    with pytest.raises(StorageError) as caught:
        open_database(where, read_only=read_only)
    said = str(caught.value)
    assert "\n" not in said
    assert "sqlalche.me" not in said
    return said


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "empty"),
        ("mysql://a/b", "'mysql' is not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        (":memory:", "not a database URL"),
        ("postgresql:/a", "not a database URL"),
        ("://", "malformed"),
        ("postgresql://host:port/name", "malformed"),
        ("postgresql://", "names no server"),
        ("\udcff.db", "no text"),
    ],
)
def test_a_malformed_address(where: str, why: str) -> None:
    assert why in fault(where)


def test_a_missing_directory(tmp_path: Path) -> None:
    assert "does not exist" in fault(tmp_path / "no" / "a.db")


def test_a_directory_instead_of_a_file(tmp_path: Path) -> None:
    assert "is a directory" in fault(tmp_path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 10)
    before = path.read_bytes()
    assert "not an SQLite database" in fault(path)
    assert "not an SQLite database" in fault(path, read_only=True)
    assert path.read_bytes() == before


def test_a_server_that_is_not_there() -> None:
    assert "no server answers" in fault(f"postgresql://u:secret@127.0.0.1:{free_port()}/d")


def test_a_password_is_never_shown() -> None:
    said = fault(f"postgresql://u:secret@127.0.0.1:{free_port()}/d")
    assert "secret" not in said


def test_an_unknown_database_on_a_server(postgres_server: str) -> None:
    assert "does not know that database" in fault(f"{postgres_server}/nowhere")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_schema(database_url: str, read_only: bool) -> None:
    with open_database(database_url) as database, database._write() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    assert "upgrade slotune" in fault(database_url, read_only=read_only)


def test_the_default_is_a_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_database().close()
    assert (tmp_path / "slotune.db").is_file()


def test_reading_a_missing_file_makes_none(tmp_path: Path) -> None:
    assert "does not exist" in fault(tmp_path / "a.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_reading_a_database_without_our_tables_adds_none(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    assert "holds no slotune tables" in fault(path, read_only=True)
    with sqlite3.connect(path) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
    assert names == ["other"]


def test_a_reader_cannot_write(database_url: str) -> None:
    with open_database(database_url) as writer:
        writer.create_study("a")
    with open_database(database_url, read_only=True) as reader:
        assert [s.name for s in reader.list_studies()] == ["a"]
        with pytest.raises(StorageError, match="reading only"):
            reader.create_study("b")
        with pytest.raises(StorageError, match="reading only"):
            reader.optuna_storage()
        with pytest.raises(StorageError), reader._read() as session:  # the database refuses too
            session.execute(text("DELETE FROM study"))
        assert [s.name for s in reader.list_studies()] == ["a"]


@pytest.mark.parametrize("damaged", ["not json", "[1,2", "5", "[]", '"x"'])
def test_a_damaged_row_is_named(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "a.db"
    with open_database(path) as database:
        database.create_study("<script>alert(1)</script>")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE study SET budget = ?", (damaged,))
    connection.close()
    with open_database(path, read_only=True) as database:
        with pytest.raises(StorageError, match="damaged row") as caught:
            database.list_studies()
        assert damaged in str(caught.value)


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    with open_database(tmp_path / "a.db") as database:
        kept = database.add_measurement(stage="bench", config={}, started_at_s=1.0)
        with database._write() as session:
            pages = session.execute(text("PRAGMA page_count")).scalar_one()
            session.execute(text(f"PRAGMA max_page_count={pages + 2}"))
        with pytest.raises(StorageError, match="the disk is full"):
            database.add_measurement(
                stage="bench", config={"text": "x" * 200_000}, started_at_s=2.0
            )
        assert [m.id for m in database.list_measurements()] == [kept]


def as_nobody(path: Path, *, read_only: bool) -> str:
    """What a user without rights is told; in a child, where root steps down."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing was refused"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            with open_database(path, read_only=read_only) as database:
                said = f"{len(database.list_studies())} studies"
        except BaseException as found:
            said = f"{type(found).__name__}: {found}"
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_a_file_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.db")
        open_database(path).close()
        path.chmod(0o444)
        path.parent.chmod(0o555)
        assert as_nobody(path, read_only=True) == "0 studies"
        assert [p.name for p in path.parent.iterdir()] == ["a.db"]
        for refused in (path, path.parent / "new.db"):
            said = as_nobody(refused, read_only=False)
            assert said.startswith(f"StorageError: the database {refused} cannot be opened: ")
            assert "writable" in said or "may not be read or written" in said
        path.parent.chmod(0o755)
