"""When requests are sent, by how many processes, and turns that wait for answers."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import pytest

from tests.tuner.fake_server import (
    DONE,
    FakeServer,
    Reply,
    answer,
    refusal,
    steps,
    text,
    usage,
)
from tests.tuner.load.driving import plan, run, times_of
from tuner.errors import UserError
from tuner.load import LoadResult, generate
from tuner.load.processes import decide_processes
from tuner.load.schedule import Shard
from tuner.records import RequestRecord
from tuner.workload.content import Content


def test_open_loop_sends_at_the_workloads_times(processes: int) -> None:
    workload = "prompt=8,output=2,rate=60"
    load = run(None, workload, 1.0, processes=processes)
    assert [r.scheduled_s for r in load.records] == times_of(workload, 1.0)
    assert [(r.index, r.session, r.turn) for r in load.records] == [
        (i, i, 0) for i in range(len(load.records))
    ]
    assert all(r.ok and r.lag_s >= 0 for r in load.records)
    assert (load.processes, load.sent_all) == (processes, False)
    assert load.ended_s >= 1.0


def test_several_processes_send_what_one_would() -> None:
    bodies = []
    for count in (1, 3):
        with FakeServer() as server:
            generate(plan(server, "prompt=8,output=2,rate=200", max_requests=40,
                          content_salt=b"salt", processes=count))  # fmt: skip
            bodies.append(sorted(str(body["prompt"]) for body in server.requests))
    assert bodies[0] == bodies[1]
    assert len(set(bodies[0])) == 40


def test_late_generator_sends_at_once_and_shows_it() -> None:
    """Something holds the generator up for 0.4 s: what was due is sent late, and that is told."""

    held: list[float] = []

    def hold_up(load: LoadResult) -> bool:
        if not held:
            held.append(load.now_s())
            time.sleep(0.4)
        return load.now_s() > held[0] + 1.0

    with FakeServer() as server:
        load = generate(plan(server, "prompt=8,output=2,rate=50,arrivals=constant"), hold_up)
    assert max(r.lag_s for r in load.records) >= 0.3
    assert sum(r.lag_s >= 0.1 for r in load.records) >= 5
    assert load.stalls.max_s >= 0.35
    assert load.stalls.p99_s >= 0.3
    assert load.stopped_early


def test_request_is_in_time_where_nothing_is_in_its_way() -> None:
    """The best of forty: a busy machine makes some late, a loop's rounded timers all of them."""
    load = run(None, "prompt=8,output=2,rate=40", 1.0)
    assert min(r.lag_s for r in load.records[1:]) < 0.0005


def test_all_at_once(processes: int) -> None:
    load = run(lambda _, body: answer(body, first_s=0.2), "prompt=8,output=2,rate=inf,requests=50",
               processes=processes)  # fmt: skip
    assert [r.scheduled_s for r in load.records] == [0.0] * 50
    assert all(r.ok for r in load.records)
    assert load.sent_all
    assert load.ended_s < 30  # all was sent and answered: nothing is left to wait for


def test_closed_loop_is_scheduled_when_the_last_answer_ended(processes: int) -> None:
    load = run(None, "prompt=8,output=2,concurrency=3", max_requests=30, processes=processes)
    assert sorted(r.session for r in load.records) == list(range(30))
    assert all(r.ok for r in load.records)
    ends = {r.end_s for r in load.records}
    assert sum(r.scheduled_s in ends for r in load.records) == 27  # but each client's first
    assert load.sent_all


def test_clients_come_and_go() -> None:
    """Ramp up from 1 to 6 clients, and down again."""
    load = run(lambda _, body: answer(body, first_s=0.03),
               "prompt=8,output=2,concurrency=1..6@1s/6..1@1s", 2.0)  # fmt: skip

    def most_at_once(from_s: float, to_s: float) -> int:
        """Of the requests sent in this time."""
        sent = [r for r in load.records if from_s <= r.sent_s < to_s]
        return max(sum(o.sent_s <= r.sent_s < o.end_s for o in sent) for r in sent)

    assert most_at_once(0.0, 0.15) <= 2
    assert 4 <= most_at_once(0.0, 2.0) <= 6
    assert most_at_once(1.85, 2.0) <= 2


def test_shares_of_the_clients_add_up() -> None:
    for clients in range(12):
        for processes in range(1, 5):
            shares = [Shard(k, processes).share(clients) for k in range(processes)]
            assert sum(shares) == clients


@pytest.mark.parametrize(
    ("workload", "count"),
    [
        ("prompt=8,output=16,rate=10", 1),
        ("prompt=8,output=16,concurrency=500", 1),
        ("prompt=8,output=16,rate=4000", 5),
        ("prompt=8,output=1000,rate=200", 9),
        ("prompt=8,output=16,rate=40000", 15),
    ],
)
def test_as_many_processes_as_the_rate_needs(
    workload: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    processes, why = decide_processes(plan(None, workload, 3.0))
    assert abs(processes - count) <= 1
    assert why
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert decide_processes(plan(None, workload, 3.0))[0] == 1


def test_number_of_processes_can_be_given() -> None:
    wanted = plan(None, "prompt=8,output=16,rate=10", processes=3)
    assert decide_processes(wanted)[0] == 3
    with pytest.raises(UserError, match="at least 1"):
        decide_processes(plan(None, "prompt=8,output=16,rate=10", processes=0))


class Talk:
    """Three turns a session; each later one needs the answers before it."""

    keeps_answers = True

    def __init__(self, content: Content) -> None:
        self.content = content

    def turns(self, session: int) -> int:
        return 3

    def think_s(self, session: int, turn: int) -> float:
        return 0.05

    def lengths(self, session: int, turn: int = 0) -> tuple[int, int, int]:
        return 8 + turn, 2, 0

    def body(self, session: int, turn: int = 0, answers: Any = ()) -> dict[str, Any]:
        body = self.content.body(session)
        return {**body, "user": f"{session}.{turn}", "answers": list(answers)}


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.load.generator.Content", lambda *args: Talk(Content(*args)))


@pytest.mark.usefixtures("talking")
@pytest.mark.parametrize("arrivals", ["rate=20", "concurrency=2"])
def test_turns_wait_for_the_answers_before(arrivals: str) -> None:
    def script(_: int, body: dict[str, Any]) -> Reply:
        return steps(text(f"a{body['user']} "), text("b", finish="stop"), usage(2), DONE)

    with FakeServer(script) as server:
        load = generate(plan(server, f"prompt=8,output=2,{arrivals}", max_requests=4))
    by_name = {(r.session, r.turn): r for r in load.records}
    assert sorted(by_name) == [(s, t) for s in range(4) for t in range(3)]
    for (session, turn), record in by_name.items():
        assert record.ok
        assert record.wanted_prompt_tokens == 8 + turn
        if turn:
            assert record.scheduled_s == by_name[session, turn - 1].end_s + 0.05
            assert record.sent_s >= record.scheduled_s
    for body in server.requests:
        session, turn = body["user"].split(".")
        assert body["answers"] == [f"a{session}.{t} b" for t in range(int(turn))]


@pytest.mark.usefixtures("talking")
def test_failed_turn_ends_its_conversation() -> None:
    def script(_: int, body: dict[str, Any]) -> Reply:
        return refusal() if body["user"] == "1.1" else answer(body)

    with FakeServer(script) as server:
        load = generate(plan(server, "prompt=8,output=2,rate=50", max_requests=2))
    assert sorted((r.session, r.turn) for r in load.records) == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1),
    ]  # fmt: skip


def test_record_names_its_lag() -> None:
    assert RequestRecord(0, 1.0, sent_s=1.25).lag_s == 0.25
    assert math.isnan(RequestRecord(0, 1.0).lag_s)
