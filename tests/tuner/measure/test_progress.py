"""Progress of a measurement that runs, from its growing records."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.tuner.fake_server import FakeServer, tokens
from tuner.endpoint import Endpoint
from tuner.load import LoadResult
from tuner.measure import Sending, measure
from tuner.measure.progress import MOST_RECENT, Progress, Tracker
from tuner.records import RequestRecord
from tuner.workload import parse_workload


class Clock(LoadResult):
    """A result whose time is told."""

    __slots__ = ("time_s",)

    def now_s(self) -> float:
        return float(self.time_s)


def at(time_s: float, load: Clock) -> Clock:
    load.time_s = time_s
    return load


def ended(record: RequestRecord, end_s: float, ttft_s: float = 0.1) -> RequestRecord:
    first_s = record.scheduled_s + ttft_s
    return replace(
        record, state="ok", sent_s=record.scheduled_s, first_token_s=first_s, end_s=end_s,
        chunk_times_s=[first_s, end_s], chunk_tokens=[1, 9], output_tokens=10,
    )  # fmt: skip


def test_counts_follow_records_that_change_in_place_or_are_replaced() -> None:
    load = Clock(0.0, 0.0)
    tracker = Tracker(warmup_s=2.0, total_s=10.0)
    load.records += [RequestRecord(i, i * 0.1) for i in range(10)]
    first = tracker.look(at(1.0, load))
    assert (first.sent, first.in_flight, first.completed, first.failed) == (10, 10, 0, 0)
    assert first.phase == "warm-up"
    assert math.isnan(first.ttft.p95_s)
    load.records[3] = ended(load.records[3], 1.5)
    load.records[4].state, load.records[4].end_s = "failed", 1.6
    second = tracker.look(at(3.0, load))
    assert (second.in_flight, second.completed, second.failed) == (8, 1, 1)
    assert second.phase == "measuring"
    assert second.ttft.p50_s == pytest.approx(0.1)
    assert second.ttft.n == 1
    assert second.output_tps == pytest.approx(10 / 3)
    assert tracker.look(at(3.0, load)).completed == 1
    assert tracker.look(at(11.0, load)).phase == "draining"


def test_running_requests_show_their_first_tokens_and_tokens() -> None:
    load = Clock(0.0, 0.0)
    tracker = Tracker(warmup_s=0.0, total_s=100.0)
    record = RequestRecord(0, 0.5, sent_s=0.6, first_token_s=1.5, chunk_times_s=[1.5, 1.6])
    load.records.append(record)
    first = tracker.look(at(2.0, load))
    assert (first.in_flight, first.ttft.n, first.ttft.p50_s) == (1, 1, pytest.approx(1.0))
    assert first.lag.p99_s == pytest.approx(0.1)
    assert first.output_tps == pytest.approx(1.0)
    record.chunk_times_s += [2.1, 2.2]
    second = tracker.look(at(4.0, load))
    assert second.ttft.n == 1
    assert second.output_tps == pytest.approx(1.0)
    for look_s in (8.0, 12.0, 16.0, 20.0):
        late = tracker.look(at(look_s, load))
    assert late.ttft.n == 0
    assert late.output_tps == 0


def test_rates_are_of_the_last_seconds() -> None:
    load = Clock(0.0, 0.0)
    tracker = Tracker(warmup_s=0.0, total_s=100.0)
    load.records += [ended(RequestRecord(i, i * 0.5), i * 0.5 + 0.4, 0.05) for i in range(60)]
    found = tracker.look(at(30.0, load))
    assert found.sent == found.completed == 60
    assert found.sent_rate == pytest.approx(2.0, rel=0.06)
    assert found.completed_rate == pytest.approx(2.0, rel=0.06)
    assert found.eta_s == 70.0
    quiet = tracker.look(at(60.0, load))
    assert quiet.completed_rate == 0
    assert quiet.ttft.n == 0


def test_more_than_is_kept_still_gives_the_rate() -> None:
    load = Clock(0.0, 0.0)
    tracker = Tracker(warmup_s=0.0, total_s=100.0)
    count = 4 * MOST_RECENT
    load.records += [ended(RequestRecord(i, i / 1000), i / 1000 + 0.2) for i in range(count)]
    found = tracker.look(at(count / 1000 + 0.2, load))
    assert found.completed == count
    assert found.completed_rate == pytest.approx(1000, rel=0.01)
    assert found.ttft.n == MOST_RECENT


def test_a_load_that_is_given_has_no_warm_up_to_show() -> None:
    seen: list[Progress] = []
    with FakeServer(lambda _, __: tokens(4, gap_s=0.4)) as server:
        workload = parse_workload("prompt=8,output=4,rate=inf,requests=6")
        measure(Endpoint(server.url).probe(), workload, duration_s=20.0, warmup_s=5.0,
                on_progress=seen.append, sending=Sending(drain_s=5.0))  # fmt: skip
    assert {one.phase for one in seen} == {"draining"}
