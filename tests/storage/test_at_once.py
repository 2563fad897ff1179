"""Several on one database at once: what each sees, how long it waits, and what a kill leaves."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from storage import StorageError, location, open_database


def test_a_reader_sees_each_commit_and_never_holds_up_the_writer(database_url: str) -> None:
    with open_database(database_url) as writer:
        study = writer.create_study("a")
        with open_database(database_url, read_only=True) as reader, reader._read() as held:
            held.execute(text("SELECT count(*) FROM measurement")).all()  # a snapshot stays open
            seen = []
            for number in range(30):
                writer.add_measurement(
                    stage="search", config={}, started_at_s=float(number), study_id=study.id,
                    records={"sent_s": [0.0] * 100},
                )  # fmt: skip
                seen.append(len(reader.list_measurements(study.id)))
    assert seen == list(range(1, 31))


def test_two_openers_of_an_empty_database_make_one_schema(database_url: str) -> None:
    faults: list[BaseException] = []

    def make() -> None:
        try:
            open_database(database_url).close()
        except BaseException as found:
            faults.append(found)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with open_database(database_url) as database:
        assert database.list_studies() == []


def test_openers_of_an_empty_search_history_at_once_make_one(database_url: str) -> None:
    faults: list[BaseException] = []
    at_once = threading.Barrier(6)

    def make() -> None:
        with open_database(database_url) as database:
            at_once.wait()
            try:
                database.optuna_storage().get_all_studies()
            except BaseException as found:
                faults.append(found)

    threads = [threading.Thread(target=make) for _ in range(at_once.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_reader_does_not_wait_long_for_a_database_that_is_being_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "READ_TIMEOUT_S", 0.2)
    path = tmp_path / "a.db"
    open_database(path).close()
    with open_database(path, read_only=True) as reader:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="held its lock for too long"):
            reader.list_studies()
        other.execute("ROLLBACK")
        other.close()
        assert reader.list_studies() == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_reader_does_not_wait_long_for_a_locked_table(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "READ_TIMEOUT_S", 0.2)
    open_database(database_url).close()
    locker = create_engine(location.parse(database_url).url)
    with open_database(database_url, read_only=True) as reader:
        with locker.begin() as other:
            other.execute(text("LOCK TABLE study IN ACCESS EXCLUSIVE MODE"))
            with pytest.raises(StorageError, match="held its lock for too long"):
                reader.list_studies()
        assert reader.list_studies() == []
    locker.dispose()


def test_a_lock_held_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "BUSY_TIMEOUT_S", 0.2)
    path = tmp_path / "a.db"
    with open_database(path) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="held its lock for too long"):
            database.create_study("a")
        other.execute("ROLLBACK")
        other.close()
        database.create_study("a")


WRITER = """
import sys, time
from storage import open_database
from sqlalchemy import create_engine, text
database = open_database(sys.argv[1])
study = database.create_study("a")
database.add_measurement(stage="search", config={}, started_at_s=1.0, study_id=study.id,
                         records={"sent_s": [0.5]})
with database._write() as session:
    session.execute(text("UPDATE study SET name = 'half done'"))
    session.execute(text("DELETE FROM request_records"))
    print("in the middle", flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_what_was_committed(database_url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, database_url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "in the middle"
        process.send_signal(signal.SIGKILL)
    with open_database(database_url) as database:
        study = database.get_study("a")
        assert study is not None
        (measurement,) = database.list_measurements(study.id)
        assert list(database.load_records(measurement.id)["sent_s"]) == [0.5]
        database.update_study(study.id, state="stopped")
