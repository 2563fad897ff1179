"""What is written of the history: over damaged rows, by several processes, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from sqlalchemy import func, insert, select

from storage import Database, StudyExistsError, open_database
from storage.database import Database as Door
from storage.errors import ConflictError
from storage.history import History
from storage.history_points import COARSE_S, FINE_S, KEPT_S, MAX_SERIES, Layout, Point
from storage.schema import MetricLayoutRow, MetricPointRow, MetricTargetRow
from storage.sources.exposition import STARTED
from storage.sources.longterm import watched_since
from tests.storage.sources.virtual import START_S, VirtualScrape

URL = "http://virtual/metrics"


def point(at_s: float, value: float = 1.0, lost: float = 0.0) -> Point:
    layout = Layout(("vllm:done_total",))
    return Point(at_s, layout, np.array([value]), np.zeros(1), np.array([lost]))


def giving(made: Point) -> Callable[[float | None], Point]:
    return lambda since_s: made


def minutes(history: History, first: int, last: int) -> None:
    for minute in range(first, last):
        history.add(giving(point(START_S + 60 * minute + 1, value=float(minute))))


def test_a_damaged_point_does_not_end_the_writing(database: Database) -> None:
    """In a slot that is complete, one to be completed, and the one that is written next."""
    minutes(History(database, URL), 0, 16)
    slots = [int(START_S // 60) + minute for minute in (3, 13, 15)]
    with database._write() as session:
        for row in session.scalars(select(MetricPointRow).where(MetricPointRow.slot.in_(slots))):
            row.blob = b"nonsense"
    history = History(database, URL)
    history.add(giving(point(START_S + 60 * 15 + 30, value=15.5)))
    minutes(history, 16, 32)
    (ended, *_) = history.read(COARSE_S, START_S + 600)
    assert ended.at_s == START_S + 60 * 19 + 1
    assert [found.values[0] for found in history.read(FINE_S, START_S + 60 * 14 + 30)][:2] == [
        15.5,
        16.0,
    ]


def test_a_damaged_list_of_series_is_stored_anew(database: Database) -> None:
    minutes(History(database, URL), 0, 12)
    with database._write() as session:
        session.scalars(select(MetricLayoutRow)).one().blob = b"nonsense"
    minutes(History(database, URL), 12, 24)
    assert len(History(database, URL).read(FINE_S, 0.0)) == 24


def test_a_reset_between_two_readers_samples_counts_once(database: Database) -> None:
    """The second reader's own sample before the newest point is older than the reset that the
    first one has counted."""
    one, two = (VirtualScrape(lambda: History(database, URL)) for _ in range(2))

    def look(reader: VirtualScrape, after_s: float, value: float) -> None:
        reader.now_s = START_S + after_s
        reader.scrape(f"vllm:done_total {value}\n")

    look(one, 0, 100)
    one.write()
    look(two, 62, 100)
    look(one, 65, 10)  # the reset
    one.write()
    look(two, 127, 20)
    two.write()
    points = History(database, URL).read(FINE_S, 0.0)
    assert [found.at_s - START_S for found in points] == [0, 65, 127]
    assert [float(found.lost[0]) for found in points] == [0, 100, 0]


def test_who_comes_second_joins_what_the_other_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process stores the target and a point after this one looked for them."""
    history, other = History(database, URL), History(database, URL)
    known, asked = History._known_target, []

    def looked_too_soon(self: History, session: object, *, to_write: bool = False) -> int | None:
        asked.append(self)
        if self is history and len(asked) == 1:
            return None
        return known(self, session, to_write=to_write)  # type: ignore[arg-type]

    other.add(giving(point(START_S + 1, value=3.0)))
    monkeypatch.setattr(History, "_known_target", looked_too_soon)
    history.add(lambda since_s: point(START_S + 2, value=4.0) if since_s == START_S + 1 else
                point(START_S + 2, value=-1.0))  # fmt: skip
    (joined,) = other.read(FINE_S, 0.0)
    assert (joined.at_s, joined.values[0]) == (START_S + 2, 4.0)


def test_readers_that_begin_one_target_at_once_all_get_through(database_url: str) -> None:
    """Six of them: every loss is told once, whoever comes first."""
    faults: list[BaseException] = []
    at_once = threading.Barrier(6)

    def begin(number: int) -> None:
        with open_database(database_url) as database:
            at_once.wait()
            try:
                History(database, URL).add(
                    lambda since_s: point((since_s or START_S) + 1, value=number, lost=1.0)
                )
            except BaseException as found:
                faults.append(found)

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(at_once.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with open_database(database_url) as database:
        (joined,) = History(database, URL).read(FINE_S, 0.0)
    assert (joined.at_s - START_S, joined.lost[0]) == (6, 6)


def test_only_a_new_study_is_told_that_its_name_is_taken(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes(History(database, URL), 0, 1)
    with pytest.raises(ConflictError) as told, database._write() as session:
        session.execute(insert(MetricTargetRow).values(address=URL))
    assert not isinstance(told.value, StudyExistsError)
    assert str(told.value).startswith("what was to be stored stands in")
    database.create_study("a")
    write = Door._write

    def blind(self: Door) -> object:
        session = write(self)
        monkeypatch.setattr("sqlalchemy.orm.Session.scalar", lambda *_: None)
        return session

    monkeypatch.setattr(Door, "_write", blind)  # the name is taken after it was looked for
    with pytest.raises(StudyExistsError, match="'a' exists"):
        database.create_study("a")


def test_a_target_that_nobody_watches_any_more_is_forgotten(database: Database) -> None:
    """Its points by age, then its list of series and itself; a younger target stays."""
    gone, young, kept = (History(database, f"http://{name}") for name in ("gone", "young", "kept"))
    minutes(gone, 0, 25)
    later_s = START_S + KEPT_S[COARSE_S] + 3600
    young.add(giving(point(later_s - 7200)))
    kept.add(giving(point(later_s)))
    with database._read() as session:
        addresses = set(session.scalars(select(MetricTargetRow.address)))
        layouts = session.scalar(select(func.count()).select_from(MetricLayoutRow))
    assert addresses == {"http://young", "http://kept"}
    assert layouts == 2
    assert gone.read(FINE_S, 0.0) == gone.read(COARSE_S, 0.0) == []


def test_nothing_new_leaves_no_target(database: Database) -> None:
    assert History(database, URL).add(lambda since_s: None) is None
    with database._read() as session:
        assert session.scalar(select(func.count()).select_from(MetricTargetRow)) == 0


def test_series_beyond_the_most_are_told_once(database: Database) -> None:
    scrape = VirtualScrape(lambda: History(database, URL))
    page = "".join(f'vllm:done_total{{n="{n}"}} 1\n' for n in range(MAX_SERIES + 3))
    scrape.watch(START_S + 240, lambda at_s: page)
    assert scrape.told == [
        f"some metrics are not kept beyond 15 min: a target's first {MAX_SERIES} engine series "
        "are kept, 3 are not"
    ]


@pytest.mark.parametrize(
    ("before", "after", "seen"), [(5.0, 5.0, 0), (5.0, 6.0, 600), (None, None, 600),
                                  (5.0, None, 600), (None, 5.0, 600)]
)  # fmt: skip
def test_a_gap_counts_as_watched_only_over_the_same_process(
    before: float | None, after: float | None, seen: float
) -> None:
    """A start that is not told is not known to be the same."""

    def started(at_s: float, start_s: float | None) -> Point:
        layout = Layout(() if start_s is None else (STARTED,))
        figures = np.array([] if start_s is None else [start_s])
        return Point(at_s, layout, figures, figures, np.zeros(len(figures)))

    points = [started(0.0, before), started(600.0, after), started(660.0, after)]
    assert watched_since(points, FINE_S) == seen
