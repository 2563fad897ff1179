"""The small parts of the generator: stalls, the reserve of requests, the schedule, records."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from tuner.endpoint import Endpoint
from tuner.load import LoadPlan, LoopStalls
from tuner.load.bodies import Requests
from tuner.load.schedule import Schedule, Shard
from tuner.load.stalls import BEAT_S
from tuner.workload import parse_workload
from tuner.workload.content import Content

ENDPOINT = Endpoint("http://host:1", "m", token_ids=True)


def stalls(late_s: list[float], busy: float = 0.5, loop: int = 0) -> LoopStalls:
    count = len(late_s)
    at_s = np.cumsum(np.array(late_s) + BEAT_S)
    return LoopStalls(at_s, np.array(late_s), np.full(count, busy), np.full(count, loop))


def test_nothing_watched_is_no_stall() -> None:
    none = LoopStalls()
    assert (none.p99_s, none.max_s, none.busy_share) == (0.0, 0.0, 0.0)
    assert LoopStalls.merged([]).max_s == 0.0


def test_long_stall_weighs_as_long_as_it_lasted() -> None:
    """One second of silence within ten: a tenth of the time, not one beat in nine hundred."""
    made = stalls([0.0] * 450 + [1.0] + [0.0] * 449)
    assert made.max_s == 1.0
    assert 0.85 <= made.p99_s <= 0.95
    assert stalls([0.0] * 1000).p99_s == 0.0


def test_stalls_of_a_part_of_the_time() -> None:
    made = stalls([0.0] * 100 + [0.5] + [0.0] * 100)
    assert made.within(0.0, 0.9).max_s == 0.0
    assert made.within(1.0, 2.0).max_s == 0.5


def test_busiest_loop_counts() -> None:
    merged = LoopStalls.merged([stalls([0.0] * 10, 0.2), stalls([0.3], 0.9)])
    assert merged.busy_share == pytest.approx(0.9)
    assert merged.max_s == 0.3
    assert set(merged.loop.tolist()) == {0, 1}


def requests(workload: str = "prompt=8,output=3,concurrency=1", **more: int) -> Requests:
    content = Content(parse_workload(workload), ENDPOINT, 0, b"salt")
    return Requests(content, ENDPOINT, range(0, 100), None, **more)


def test_reserve_changes_nothing_of_what_is_sent() -> None:
    built, kept = requests(), requests()
    kept.prebuild(10)
    for session in (0, 1, 5, 4, 30, 31):
        assert kept.take(session) == built.build(session)
        kept.refill()


def test_sessions_that_were_passed_over_are_not_built() -> None:
    made = requests()
    made.prebuild(3)
    made.take(50)
    assert made.refill()
    assert made.take(51).data == made.build(51).data
    assert not made._reserve.keys() & {50}


def test_reserve_is_bounded_and_ends_with_the_sessions() -> None:
    small = requests(reserve_bytes=1000)
    small.prebuild()
    assert 1000 <= small._reserved_bytes < 2000
    assert not small.refill()
    small.take(0)
    assert small.refill() or small._reserved_bytes >= 1000
    whole = requests()
    whole.prebuild()
    assert len(whole._reserve) == 100
    assert not whole.refill()


def test_request_is_whole() -> None:
    request = requests().build(3)
    head, _, body = request.data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    assert f"Content-Length: {len(body)}" in lines
    assert "Accept-Encoding: identity" in lines
    sent = json.loads(body)
    assert (len(sent["prompt"]), sent["max_tokens"]) == (8, 3)
    assert (request.prompt_tokens, request.output_tokens) == (8, 3)


def plan(workload: str, send_s: float = 2.0, max_requests: int | None = None) -> LoadPlan:
    return LoadPlan(ENDPOINT, parse_workload(workload), 0, send_s, max_requests=max_requests)


def test_looking_ahead_takes_nothing() -> None:
    wanted = plan("prompt=8,output=3,rate=50")
    schedule = Schedule(wanted, Shard())
    ahead = list(itertools.islice(schedule.sessions_ahead(), 10))
    taken = list(schedule)
    assert ahead == list(range(10))
    assert [session for session, _ in taken] == list(range(len(taken)))
    assert taken == list(Schedule(wanted, Shard()))


def test_shards_share_one_schedule() -> None:
    wanted = plan("prompt=8,output=3,rate=50")
    parts = [list(Schedule(wanted, Shard(k, 3))) for k in range(3)]
    assert sorted(itertools.chain(*parts)) == list(Schedule(wanted, Shard()))
    assert all(session % 3 == k for k, part in enumerate(parts) for session, _ in part)


@pytest.mark.parametrize(
    ("workload", "most", "count"),
    [
        ("rate=50", 10, 10),
        ("rate=50,requests=7", None, 7),
        ("rate=50,requests=7", 5, 5),
        ("rate=inf,requests=7", None, 7),
    ],
)
def test_schedule_tells_when_all_was_drawn(workload: str, most: int | None, count: int) -> None:
    schedule = Schedule(plan(f"prompt=8,output=3,{workload}", max_requests=most), Shard())
    assert not schedule.complete
    assert len(list(schedule)) == count
    assert schedule.complete


@pytest.mark.parametrize(
    ("workload", "most"), [("rate=50", None), ("rate=50", 10_000), ("rate=10@1s", None)]
)
def test_time_that_is_up_is_no_end_of_the_schedule(workload: str, most: int | None) -> None:
    schedule = Schedule(plan(f"prompt=8,output=3,{workload}", max_requests=most), Shard())
    assert len(list(schedule)) > 5
    assert not schedule.complete
