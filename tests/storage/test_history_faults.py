"""Whatever the database does, the live view goes on, and a fault is told once."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select, text

from storage import Database, StorageError, open_database
from storage.history import History
from storage.history_points import FINE_S, Point
from storage.schema import MetricPointRow
from storage.sources.base import Outcome
from storage.sources.keeper import FaultLog, Keeper
from storage.sources.scrape import ScrapeSource
from tests.storage.history_target import HOUR_S, opened, page
from tests.storage.sources.virtual import START_S, VirtualScrape


def test_a_locked_database_costs_points_not_counts(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The live view goes on; it is told once, and what came meanwhile is in the next point."""
    monkeypatch.setattr("storage.location.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "slotune.db"
    scrape = VirtualScrape(opened(str(path)))
    scrape.watch(START_S + 600, page)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    scrape.watch(START_S + 900, page)
    assert len(scrape.told) == 1
    assert "metrics are not kept beyond 15 min" in scrape.told[0]
    assert "lock" in scrape.told[0]
    assert scrape.rate("vllm:done_total", 60.0).value == pytest.approx(3.0, rel=0.05)
    assert scrape.gauge("vllm:num_requests_waiting").outcome is Outcome.VALUE
    holder.execute("ROLLBACK")
    holder.close()
    scrape.watch(START_S + 1500, page)
    found = scrape.over(1320.0).increase("vllm:done_total", 1320.0)
    assert found.value == pytest.approx(3 * 1320, rel=0.05)
    assert len(scrape.told) == 1
    scrape.close()


def test_a_full_disk_costs_the_history_alone(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "slotune.db"))
    scrape = VirtualScrape(lambda: History(database, "http://virtual/metrics"))
    scrape.watch(START_S + 300, page)
    with database._read() as session:
        pages = session.execute(text("PRAGMA page_count")).scalar_one()
        session.execute(text(f"PRAGMA max_page_count = {pages}"))
    scrape.watch(START_S + 2 * HOUR_S, page)
    assert len(scrape.told) == 1
    assert "the disk is full" in scrape.told[0]
    assert scrape.rate("vllm:done_total", 60.0).value == pytest.approx(3.0, rel=0.05)
    scrape.close()


def test_a_history_that_cannot_be_opened_is_told_once(tmp_path: Path) -> None:
    """A directory that is not there, and a database that another program damaged."""
    broken = tmp_path / "broken.db"
    broken.write_text("no database " * 100)
    for path in (tmp_path / "none" / "a.db", broken):
        scrape = VirtualScrape(opened(str(path)))
        scrape.watch(START_S + 400, page)
        assert scrape.over(1200.0) is scrape
        assert len({told.split(":")[0] for told in scrape.told}) == len(scrape.told) == 2
        scrape.close()


def test_nobody_waits_for_a_database_that_does_not_open() -> None:
    answers = threading.Event()

    def slow() -> History:
        answers.wait(30)
        raise StorageError("the server did not answer in time")

    source = ScrapeSource("http://127.0.0.1:9", history=slow)
    try:
        began_s = time.monotonic()
        assert source.over(3600.0) is source
        assert time.monotonic() - began_s < 10
    finally:
        answers.set()
        source.close()


def test_a_read_that_failed_is_not_tried_at_every_look(database: Database) -> None:
    class Failing(History):
        reads = 0

        def read(self, *_: object) -> list[Point]:
            Failing.reads += 1
            raise StorageError("the server did not answer in time")

    scrape = VirtualScrape(lambda: Failing(database, "http://virtual/metrics"))
    scrape.watch(START_S + 300, page)
    for _ in range(5):
        scrape.now_s += 10
        assert scrape.over(3600.0) is scrape
    assert Failing.reads == 1


def test_a_damaged_point_is_told(database: Database) -> None:
    history = History(database, "http://virtual/metrics")
    scrape = VirtualScrape(lambda: history)
    scrape.watch(START_S + 1300, page)
    with database._write() as session:
        row = session.scalars(select(MetricPointRow).limit(1)).one()
        row.blob = b"nonsense"
    with pytest.raises(StorageError, match=r"the history in .* cannot be read"):
        history.read(FINE_S, 0.0)
    assert scrape.over(1200.0) is scrape
    assert "damaged" in scrape.told[0]


@pytest.mark.parametrize("with_journal", [True, False])
def test_a_history_whose_file_is_gone_is_made_anew(tmp_path: Path, with_journal: bool) -> None:
    """Deleted under a running dashboard, with SQLite's journal beside it or without."""
    path = tmp_path / "slotune-history.db"
    scrape = VirtualScrape(opened(str(path)))
    scrape.watch(START_S + 600, page)
    for file in tmp_path.iterdir():
        if with_journal or file == path:
            file.unlink()
    scrape.watch(START_S + 3000, page)
    (told,) = scrape.told
    assert f"the history of metrics in {path} was deleted, moved or replaced" in told
    assert "opened anew" in told
    found = scrape.over(2100.0).increase("vllm:done_total", 2100.0)
    assert found.value == pytest.approx(3 * 2100, rel=0.05)
    assert scrape.gauge("vllm:num_requests_waiting").outcome is Outcome.VALUE
    scrape.close()
    history = opened(str(path))()
    points = history.read(FINE_S, 0.0)
    history.close()
    assert len(points) == 40
    assert points[0].at_s < START_S + 660 + FINE_S


def test_a_history_that_is_replaced_twice_is_told_twice(tmp_path: Path) -> None:
    path = tmp_path / "slotune-history.db"
    scrape = VirtualScrape(opened(str(path)))
    for minutes in (5, 10, 15):
        scrape.watch(START_S + 60 * minutes, page)
        path.rename(tmp_path / f"kept-{minutes}.db")
    assert len(scrape.told) == 2
    scrape.close()


def test_while_a_lost_history_is_not_yet_made_anew_the_live_view_answers(tmp_path: Path) -> None:
    """The thread that writes opens it, within a minute; who asks does not wait for that."""
    path = tmp_path / "slotune-history.db"
    asked = threading.Event()

    def open_history() -> History:
        asked.set()
        return opened(str(path))()

    scrape = VirtualScrape(None)
    scrape.watch(START_S + 50, page)  # no point of its own
    keeper = Keeper(scrape, open_history, told=FaultLog(scrape.told.append))
    assert asked.wait(30)
    keeper.write()
    path.unlink()
    asked.clear()
    assert keeper.view(3600.0, scrape.now_s) is None
    assert not asked.is_set()
    keeper.close()
    assert path.exists()
    assert len(scrape.told) == 1


def test_a_history_let_go_of_while_it_is_looked_at_is_not_usable(tmp_path: Path) -> None:
    """The writer finds its file gone in between."""

    class LetGo(Keeper):
        @property  # type: ignore[override]
        def _history(self) -> History | None:
            found, self._found = self._found, None
            return found

        @_history.setter
        def _history(self, found: History | None) -> None:
            self._found = found

    kept = opened(str(tmp_path / "slotune.db"))()
    keeper = LetGo(VirtualScrape(lambda: kept), lambda: kept, read_only=True)
    assert not keeper._usable
    keeper._history = kept
    assert keeper._usable
    assert not keeper._usable
    kept.close()
