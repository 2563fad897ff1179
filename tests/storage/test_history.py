"""Long windows out of the database say what memory would have said, and cost bounded room."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from storage import Database
from storage.history import History
from storage.history_points import COARSE_S, FINE_S, KEPT_S, Layout, Point
from storage.schema import MetricLayoutRow, MetricPointRow
from storage.sources import RecordedSource
from storage.sources.base import MetricSource, RangeKind
from storage.sources.longterm import HistorySource
from tests.storage.history_target import HOUR_S, RESTART_S, opened, page
from tests.storage.sources.virtual import START_S, VirtualScrape


@pytest.fixture
def scrape(database_url: str) -> Iterator[VirtualScrape]:
    source = VirtualScrape(opened(database_url))
    yield source
    source.close()


def complete(until_s: float, interval_s: float = 5.0) -> MetricSource:
    """What a memory without end would hold."""
    times_s = np.arange(START_S + interval_s, until_s + 1e-6, interval_s)
    pages = [(float(at_s), page(at_s)) for at_s in times_s]
    return RecordedSource(pages, now_s=until_s, scrape_interval_s=interval_s)


def test_long_windows_answer_as_memory_would(scrape: VirtualScrape) -> None:
    """Over a reset, on fine points (up to 6 h) and coarse ones."""
    until_s = START_S + 7.6 * HOUR_S
    scrape.watch(until_s, page)
    memory = complete(until_s)
    for window_s, resolution_s in ((1200.0, 60), (HOUR_S, 60), (5.9 * HOUR_S, 60),
                                   (7.2 * HOUR_S, 600)):  # fmt: skip
        kept = scrape.over(window_s)
        assert isinstance(kept, HistorySource)
        assert kept.scrape_interval_s == resolution_s
        edge = resolution_s / window_s
        for name in ("vllm:done_total", "vllm:done", "vllm:ttft_seconds_count"):
            mine, theirs = kept.increase(name, window_s), memory.increase(name, window_s)
            assert mine.value == pytest.approx(theirs.value, rel=edge), (name, window_s)
        mine, theirs = (s.mean("vllm:ttft_seconds", window_s) for s in (kept, memory))
        assert mine.value == pytest.approx(theirs.value, rel=1e-6)
        mine, theirs = (s.quantile("vllm:ttft_seconds", 0.5, window_s) for s in (kept, memory))
        assert mine.value == pytest.approx(theirs.value, rel=1e-6)
        by = kept.breakdown("vllm:done_total", "finished_reason", window_s)
        assert by["stop"].value == pytest.approx(9 * (by["abort"].value or 0))
    assert scrape.told == []


def test_short_windows_stay_with_memory(scrape: VirtualScrape) -> None:
    scrape.watch(START_S + HOUR_S, page)
    assert scrape.over(60.0) is scrape
    assert scrape.over(900.0) is scrape
    assert scrape.over(901.0 + scrape.scrape_interval_s) is not scrape


def test_a_restart_of_the_reader_finds_the_history_again(database_url: str) -> None:
    first = VirtualScrape(opened(database_url))
    first.watch(START_S + HOUR_S, page)
    first.write()
    first.close()
    again = VirtualScrape(opened(database_url))
    again.now_s = START_S + HOUR_S + 300  # five minutes unwatched, the server went on
    again.watch(START_S + HOUR_S + 360, page)
    kept = again.over(900.0)
    assert kept is not again
    assert 900 <= (kept.status().watched_s or 0) < 960  # the window, and no more was asked for
    found = kept.increase("vllm:done_total", 900.0)
    wanted = complete(again.now_s).increase("vllm:done_total", 900.0)
    assert found.value == pytest.approx(wanted.value, rel=60 / 900)
    again.close()


def test_a_gap_with_a_restart_in_it_ends_what_was_watched(database_url: str) -> None:
    """What the server did between the last look and its restart nobody saw."""
    first = VirtualScrape(opened(database_url))
    first.watch(RESTART_S - 600, page)
    first.close()
    again = VirtualScrape(opened(database_url))
    again.now_s = RESTART_S + 600
    again.watch(RESTART_S + 1200, page)
    assert again.over(3 * HOUR_S) is again  # memory knows as much as can be told
    assert again.status().watched_s == pytest.approx(600, abs=10)
    again.close()


def test_targets_are_kept_apart(database_url: str) -> None:
    one = VirtualScrape(opened(database_url, "http://one/metrics"))
    two = VirtualScrape(opened(database_url, "http://two/metrics"))
    one.watch(START_S + 1300, page)
    two.watch(START_S + 1300, lambda at_s: f"vllm:done_total {10 * (at_s - START_S)}\n")
    mine, theirs = (s.over(1200.0).increase("vllm:done_total", 1200.0) for s in (one, two))
    assert theirs.value == pytest.approx(12_000, rel=0.05)
    assert mine.value == pytest.approx(3 * 1200, rel=0.05)
    one.close()
    two.close()


def test_two_readers_of_one_target_count_once(database_url: str) -> None:
    """A point follows the newest one stored, whoever stored it: no reset is counted twice."""
    one, two = VirtualScrape(opened(database_url)), VirtualScrape(opened(database_url))
    two.now_s += 2.0
    while one.now_s < RESTART_S + 1800:
        for source in (one, two):
            source.watch(one.now_s + 60, page)
    found = one.over(2 * HOUR_S).increase("vllm:done_total", 2 * HOUR_S)
    wanted = complete(one.now_s).increase("vllm:done_total", 2 * HOUR_S)
    assert found.value == pytest.approx(wanted.value, rel=0.01)
    one.close()
    two.close()


def test_charts_show_peaks_that_points_would_miss(scrape: VirtualScrape) -> None:
    """A queue of ten seconds' length between two points."""
    until_s = START_S + 2 * HOUR_S - 600
    scrape.watch(until_s, page)
    kept, name = scrape.over(HOUR_S), "vllm:num_requests_waiting"

    def minutes(source: MetricSource, kind: RangeKind) -> list[float | None]:
        return [
            value
            for _, value in source.range(
                kind, name, start_s=until_s - HOUR_S, end_s=until_s, step_s=60.0, window_s=60.0
            )
        ]

    assert max(v for v in minutes(kept, "peak") if v is not None) == 50.0
    assert set(minutes(kept, "gauge")) == {2.0}
    assert minutes(complete(until_s), "peak").count(50.0) >= 2
    assert kept.gauge(name).value == scrape.gauge(name).value


def test_silence_is_a_gap_in_the_chart(scrape: VirtualScrape) -> None:
    scrape.watch(START_S + 1200, page)
    while scrape.now_s < START_S + 2400:
        scrape.now_s += 5
        scrape._store.miss(scrape.now_s)
        if scrape.now_s % 60 < 5:
            scrape.write()
    scrape.watch(START_S + 3600, page)
    kept = scrape.over(3000.0)
    found = kept.range("gauge", "vllm:num_requests_waiting", start_s=START_S + 600,
                       end_s=START_S + 3600, step_s=300.0)  # fmt: skip
    assert [value is None for _, value in found] == [False] * 3 + [True] * 4 + [False] * 4


def test_the_room_it_takes_is_bounded(database: Database) -> None:
    """Sixty-two days of a point every four hours: thirty days stay, and a list of series in use."""
    history = History(database, "http://virtual/metrics")
    for hour in range(0, 24 * 62, 4):
        at_s = START_S + hour * HOUR_S
        keys = ("vllm:a_total", f'vllm:b{{day="{hour // 24}"}}')
        point = Point(at_s, Layout(keys), np.ones(2), np.ones(2), np.zeros(2))
        history.add(lambda since_s, point=point: point)  # type: ignore[misc]
    with database._read() as session:
        counts = {
            resolution_s: session.scalar(
                select(func.count()).where(MetricPointRow.resolution_s == resolution_s)
            )
            for resolution_s in KEPT_S
        }
        layouts = session.scalar(select(func.count()).select_from(MetricLayoutRow))
    assert counts == {FINE_S: 7, COARSE_S: 30 * 6}
    assert layouts is not None
    assert 30 <= layouts <= 32
    assert history.read(FINE_S, 0.0)[0].at_s >= at_s - KEPT_S[FINE_S]


def test_the_list_of_series_is_stored_once(database: Database) -> None:
    history = History(database, "http://virtual/metrics")
    scrape = VirtualScrape(lambda: history)
    scrape.watch(START_S + 900, page)
    with database._read() as session:
        assert session.scalar(select(func.count()).select_from(MetricLayoutRow)) == 1
        sizes = session.scalars(select(func.length(MetricPointRow.blob))).all()
    assert max(sizes) < 400
    (first, *_) = history.read(FINE_S, 0.0)
    assert not any(key.startswith("python_") for key in first.layout.keys)


def test_the_history_costs_less_than_a_hundredth_of_a_core(database: Database) -> None:
    """Ten minutes of a vLLM's page read every 5 s, with all that is written meanwhile. It takes a
    fiftieth of what is allowed here, so that only a fault of its growth can fail this."""
    text = (Path(__file__).parents[2] / "fixtures" / "vllm-0.32-cpu-kv-starved.txt").read_text()
    scrape = VirtualScrape(lambda: History(database, "http://virtual/metrics"))
    began_s = time.process_time()
    scrape.watch(START_S + 600, lambda at_s: text)
    assert time.process_time() - began_s < 0.01 * 600
    assert scrape.told == []
    assert len(History(database, "http://virtual/metrics").read(FINE_S, 0.0)) >= 9
