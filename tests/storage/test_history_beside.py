"""The history has a file of its own, so that its writes and a study's never wait for each other."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from storage import StorageError, open_database
from storage.history import History
from storage.location import history_beside, only_history
from storage.sources import open_source
from storage.sources.scrape import ScrapeSource
from tests.storage.conftest import wait_until
from tests.storage.sources.serving import serving

PAGE = "vllm:num_requests_running 1\nvllm:done_total 5\n"


@pytest.mark.parametrize(
    ("given", "name"),
    [("slotune.db", "slotune-history.db"), ("a/b.sqlite", "b-history.sqlite"),
     ("runs", "runs-history"), ("sqlite:///x.db", "x-history.db")],
)  # fmt: skip
def test_it_stands_beside_the_database(given: str, name: str) -> None:
    assert Path(history_beside(given)).name == name
    assert Path(history_beside(given)).is_absolute()


def test_a_server_keeps_both() -> None:
    url = "postgresql://user:secret@host/name"
    assert history_beside(url) == url
    assert not only_history(url)


def kept(tmp_path: Path, url: str) -> Path:
    """Scrapes a target once with a history; the study's database."""
    path = tmp_path / "slotune.db"
    source = open_source(url=url, scrape_interval_s=0.1, database=str(path))
    assert isinstance(source, ScrapeSource)
    wait_until(lambda: source.status().up, "the first scrape")
    source.close()  # writes a point
    return path


def test_the_dashboards_source_writes_there_alone(tmp_path: Path) -> None:
    with serving(PAGE) as target:
        path = kept(tmp_path, target.url)
        assert not path.exists()
        assert only_history(path)
        history = History(
            open_database(history_beside(path), read_only=True), f"{target.url}/metrics"
        )
        assert len(history.read(60, 0.0)) == 1
        history.close()


def test_a_writer_stopped_in_the_history_does_not_hold_up_a_study(tmp_path: Path) -> None:
    """A dashboard that is suspended within a write keeps its lock for as long as it is."""
    with serving(PAGE) as target:
        path = kept(tmp_path, target.url)
    holder = sqlite3.connect(history_beside(path), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with open_database(path) as database:
        began_s = time.monotonic()
        study = database.create_study("a study")
        database.optuna_storage()
        database.update_study(study.id, state="done")
        assert time.monotonic() - began_s < 20  # BUSY_TIMEOUT_S is 30
    holder.execute("ROLLBACK")
    holder.close()


def test_a_study_that_holds_its_lock_does_not_hold_up_the_history(tmp_path: Path) -> None:
    path = tmp_path / "slotune.db"
    open_database(path).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with serving(PAGE) as target:
        kept(tmp_path, target.url)
    assert Path(history_beside(path)).exists()
    holder.execute("ROLLBACK")
    holder.close()


def test_reading_a_history_that_is_not_there_says_who_keeps_it(tmp_path: Path) -> None:
    from storage.sources import _history

    path = str(tmp_path / "slotune.db")
    with pytest.raises(StorageError, match=r"slotune-history\.db; `dashboard serve --url") as told:
        _history(path, keep=False, url="http://a:8000")
    assert "--database" in str(told.value)
    assert list(tmp_path.iterdir()) == []
