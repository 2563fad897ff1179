"""When requests are sent and how a load ends, in one process and in several."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.fake_server import (
    DONE,
    HANG,
    FakeServer,
    Reply,
    Script,
    Step,
    answer,
    fault,
    refusal,
    steps,
    text,
    usage,
)
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load import Interrupted, LoadBrokenError, LoadPlan, LoadResult, generate
from tuner.load.alarm import Alarm
from tuner.load.generator import Generator
from tuner.load.processes import decide_processes
from tuner.load.schedule import Shard
from tuner.records import RequestRecord
from tuner.workload import parse_workload
from tuner.workload.content import Content

ROOT = Path(__file__).parents[3]


def plan(server: FakeServer | None, workload: str, send_s: float = 30.0, **more: Any) -> LoadPlan:
    url = server.url if server is not None else "http://127.0.0.1:1"
    endpoint = more.pop("endpoint", None) or Endpoint(url, "fake", token_ids=True)
    return LoadPlan(endpoint, parse_workload(workload), 0, send_s, **more)


def run(script: Script | None, workload: str, send_s: float = 30.0, **more: Any) -> LoadResult:
    with FakeServer(script) as server:
        return generate(plan(server, workload, send_s, **more))


def times_of(workload: str, send_s: float) -> list[float]:
    times = parse_workload(workload).arrivals.times(0, send_s)
    return list(itertools.takewhile(lambda at_s: at_s < send_s, times))


@pytest.fixture(params=[1, 3])
def processes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# When requests are sent.


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


# Conversations.


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


# Time limits, connections, bodies.


def test_total_time_limit() -> None:
    load = run(lambda _, __: steps(text("a"), HANG), "prompt=8,output=2,concurrency=1",
               request_timeout_s=0.3, max_requests=1)  # fmt: skip
    assert load.records[0].error == "no complete answer within 0.3 s"
    assert load.records[0].end_s >= 0.3


def test_limit_between_tokens_starts_with_the_first() -> None:
    def script(index: int, _: dict[str, Any]) -> Reply:
        if index == 0:  # slow to begin, then steady
            return steps(text("a", 1.0), text("b", finish="stop"), DONE)
        return steps(text("a"), text("b", 30.0, finish="stop"), DONE)

    load = run(script, "prompt=8,output=2,concurrency=1", token_timeout_s=0.5, max_requests=2)
    assert load.records[0].ok
    assert load.records[1].error == "no token for 0.5 s after the last"


def test_answer_is_complete_though_its_body_does_not_end() -> None:
    load = run(lambda _, __: steps(text("a", finish="stop"), usage(1), DONE, HANG),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert load.records[0].ok
    assert load.records[0].end_s < 30


def test_endless_answer_ends_once_it_cannot_be_one() -> None:
    flood = Step(data=(text("a").data or b"") * 1000)
    load = run(lambda _, __: Reply((flood,) * 11 + (HANG,)), "prompt=8,output=2,concurrency=1",
               max_requests=1)  # fmt: skip
    (record,) = load.records
    assert record.state == "failed"
    assert record.error == "more than 10000 tokens came where 2 were asked for"


def test_failed_stream_is_not_waited_for() -> None:
    load = run(lambda _, __: steps(text("a"), fault("out of memory"), HANG),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    (record,) = load.records
    assert (record.state, record.error) == ("failed", "error in the stream: out of memory")
    assert record.end_s < 20


def test_connections_are_kept_and_lost_ones_told() -> None:
    with FakeServer() as server:
        load = generate(plan(server, "prompt=8,output=2,concurrency=2", max_requests=20))
        assert server.connections == 2
    assert sum(r.connect_s > 0 for r in load.records) == 2
    with FakeServer(keep_alive=False) as server:
        load = generate(plan(server, "prompt=8,output=2,concurrency=2", max_requests=20))
        assert server.connections >= 20
    assert all(r.ok for r in load.records)
    assert all((r.connect_s > 0) or r.retries == 0 for r in load.records)


def test_failure_in_the_stream_stays_the_reason_when_the_connection_breaks() -> None:
    load = run(lambda _, __: steps(text("a"), Step(0.0, b"data: {broken\n\n"), cut=True),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert "something else than JSON" in load.records[0].error


def test_unreadable_refusal_is_bounded() -> None:
    load = run(lambda _, __: Reply(status=500, raw=b"x" * 5_000_000),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert load.records[0].error.startswith("HTTP 500: xxx")
    assert len(load.records[0].error) <= 300


def test_answer_that_is_no_stream_says_what_it_is() -> None:
    load = run(lambda _, __: Reply(raw=b'{"choices": [{"text": "x"}]}'),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert "the answer is empty" in load.records[0].error
    assert "text/plain" in load.records[0].error


def test_extra_body_key_and_forced_lengths_reach_the_server() -> None:
    with FakeServer(api_key="secret") as server:
        endpoint = Endpoint(server.url, "fake", api_key="secret", token_ids=True,
                            forced_lengths=True)  # fmt: skip
        wanted = plan(server, "prompt=8,output=5,concurrency=1", max_requests=1,
                      endpoint=endpoint, extra_body={"top_k": 3, "temperature": 0.5})  # fmt: skip
        load = generate(wanted)
    body = server.requests[0]
    assert load.records[0].ok
    assert (body["top_k"], body["temperature"], body["ignore_eos"]) == (3, 0.5, True)
    assert (body["min_tokens"], body["max_tokens"], body["stream"]) == (5, 5, True)


def test_extra_body_may_not_turn_the_stream_off() -> None:
    with pytest.raises(UserError, match="stream"):
        generate(plan(None, "prompt=8,output=5,concurrency=1", extra_body={"stream": False}))


# How a load ends.


def interrupting(_: LoadResult) -> bool:
    raise KeyboardInterrupt


def test_interrupt_keeps_what_was_measured(processes: int) -> None:
    def script(index: int, body: dict[str, Any]) -> Reply:
        return answer(body) if index < 6 else steps(text("a"), HANG)

    with FakeServer(script) as server:
        with pytest.raises(KeyboardInterrupt) as caught:
            generate(plan(server, "prompt=8,output=2,concurrency=3", 120.0, processes=processes),
                     interrupting)  # fmt: skip
        for _ in range(1000):
            if server.hung_up == 3:
                break
            time.sleep(0.02)
        assert server.hung_up == 3
    assert isinstance(caught.value, Interrupted)
    load = caught.value.load
    states = [r.state for r in load.records]
    assert (states.count("ok"), states.count("censored")) == (6, 3)
    assert load.stopped_early
    assert all(math.isfinite(r.end_s) for r in load.records)


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_from_the_terminal(count: int) -> None:
    """The signal goes to the whole group, as a terminal sends it; nothing stays behind."""
    code = (
        "import sys, time\n"
        "from tests.tuner.load.test_generator import *\n"
        "from tuner.load.plan import LoadPlan\n"
        "url, count = sys.argv[1], int(sys.argv[2])\n"
        "wanted = LoadPlan(Endpoint(url, 'fake', token_ids=True),\n"
        "    parse_workload('prompt=8,output=2,concurrency=4'), 0, 120.0, processes=count)\n"
        "try:\n"
        "    generate(wanted)\n"
        "except Interrupted as stop:\n"
        "    print(sorted(r.state for r in stop.load.records), stop.load.stopped_early)\n"
    )

    def script(index: int, body: dict[str, Any]) -> Reply:
        return answer(body) if index < 2 else steps(text("a"), HANG)

    with FakeServer(script) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", code, server.url, str(count)], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        wait(lambda: len(server.requests) == 6 or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=90)
        wait(lambda: server.hung_up == 4)
    assert err == ""
    assert out.strip() == f"{['censored'] * 4 + ['ok'] * 2} True"


def test_killed_sender_is_told_and_what_was_measured_kept() -> None:
    senders: list[int] = []

    def kill(load: LoadResult) -> bool:
        if sum(r.ok for r in load.records) >= 4 and not senders:
            senders.extend(children("tuner.load.worker"))
            os.kill(senders[0], signal.SIGKILL)
        return False

    broken = pytest.raises(LoadBrokenError, match="ended by signal 9")
    with FakeServer() as server, broken as caught:
        generate(plan(server, "prompt=8,output=2,rate=20", 120.0, processes=2), kill)
    assert sum(r.ok for r in caught.value.load.records) >= 4
    assert len(senders) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in senders)


def test_senders_end_with_their_coordinator() -> None:
    code = (
        "import sys\n"
        "from tests.tuner.load.test_generator import *\n"
        "generate(LoadPlan(Endpoint(sys.argv[1], 'fake', token_ids=True),\n"
        "    parse_workload('prompt=8,output=2,concurrency=4'), 0, 120.0, processes=2))\n"
    )
    with FakeServer(lambda _, __: steps(text("a"), HANG)) as server:
        process = subprocess.Popen([sys.executable, "-c", code, server.url], cwd=ROOT)
        wait(lambda: len(server.requests) == 4 or process.poll() is not None)
        senders = children("tuner.load.worker", process.pid)
        process.kill()
        process.wait()
        wait(lambda: server.hung_up == 4)
    assert len(senders) == 2
    wait(lambda: not any(alive(pid) for pid in senders))


def test_fault_in_a_tick_is_raised_from_several_processes_too() -> None:
    def broken(_: LoadResult) -> bool:
        raise ZeroDivisionError

    with FakeServer() as server, pytest.raises(ZeroDivisionError):
        generate(plan(server, "prompt=8,output=2,concurrency=2", 120.0, processes=2), broken)


def test_tick_stops_several_processes() -> None:
    with FakeServer() as server:
        load = generate(plan(server, "prompt=8,output=2,rate=50", 120.0, processes=2),
                        lambda load: sum(r.ok for r in load.records) >= 10)  # fmt: skip
    assert load.stopped_early
    assert load.ended_s < 100
    assert all(r.ok for r in load.records)


def test_fault_of_a_sender_is_told() -> None:
    """A server whose name is not known: the same sentence, however many send."""
    messages = []
    for count in (1, 2):
        endpoint = Endpoint("http://no.such.host.invalid:1", "fake", token_ids=True)
        with pytest.raises(UserError) as caught:
            generate(plan(None, "prompt=8,output=2,concurrency=2", endpoint=endpoint,
                          processes=count))  # fmt: skip
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "no.such.host.invalid" in messages[0]


def test_fault_while_the_last_answers_are_awaited_ends_at_once() -> None:
    def broken(load: LoadResult) -> bool:
        if load.now_s() > 0.6:
            raise ZeroDivisionError
        return False

    began_s = time.monotonic()
    hanging = FakeServer(lambda _, __: steps(text("a"), HANG))
    with hanging as server, pytest.raises(ZeroDivisionError):
        generate(plan(server, "prompt=8,output=2,concurrency=1", 0.2, drain_s=120.0), broken)
    assert time.monotonic() - began_s < 100


def test_tick_that_stops_what_was_already_sent_stops_nothing_early() -> None:
    def script(_: int, body: dict[str, Any]) -> Reply:
        return answer(body, first_s=2.0)

    with FakeServer(script) as server:
        load = generate(plan(server, "prompt=8,output=2,concurrency=1", 0.3), lambda _: True)
    assert not load.stopped_early
    assert load.records[0].ok


# How many processes.


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


# The clock.


async def test_alarm_wakes_in_order_and_not_early() -> None:
    alarm = Alarm()
    woken: list[tuple[float, float]] = []

    async def sleeper(at_s: float) -> None:
        await alarm.until(at_s)
        woken.append((at_s, time.monotonic()))

    now_s = time.monotonic()
    sleepers = [sleeper(now_s + delay) for delay in (0.05, 0.01, 0.03, -1.0, 0.0305)]
    await asyncio.gather(*sleepers)
    alarm.close()
    assert [at_s for at_s, _ in woken] == sorted(at_s for at_s, _ in woken)
    assert all(at_s <= woken_s for at_s, woken_s in woken)


async def test_alarm_can_ring_for_all() -> None:
    alarm = Alarm()
    sleepers = [asyncio.create_task(alarm.until(time.monotonic() + 600)) for _ in range(3)]
    await asyncio.sleep(0)
    alarm.ring_all()
    await asyncio.wait_for(asyncio.gather(*sleepers), 30)
    alarm.close()


def test_generator_runs_in_any_thread() -> None:
    found: list[int] = []
    with FakeServer() as server:
        wanted = plan(server, "prompt=8,output=2,concurrency=1", max_requests=3)
        thread = threading.Thread(target=lambda: found.append(len(generate(wanted).records)))
        thread.start()
        thread.join(60)
    assert found == [3]


def test_result_is_whole_when_a_run_is_cut() -> None:
    async def cut_soon(generator: Generator) -> None:
        asyncio.get_running_loop().call_later(0.3, generator.cut)
        with pytest.raises(asyncio.CancelledError):
            await generator.run()

    with FakeServer(lambda _, __: steps(text("a"), HANG)) as server:
        generator = Generator(plan(server, "prompt=8,output=2,concurrency=2"))
        asyncio.run(cut_soon(generator))
    assert [r.state for r in generator.result.records] == ["censored"] * 2
    assert all(r.end_s >= 0.2 for r in generator.result.records)
    assert len(generator.result.stalls.at_s) > 0


def children(name: str, parent: int | None = None) -> list[int]:
    found = []
    for pid, command, ppid in _processes():
        if name in command and ppid == (parent or os.getpid()):
            found.append(pid)
    return found


def _processes() -> Iterator[tuple[int, str, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except (OSError, UnicodeDecodeError):
                continue
            yield int(folder.name), command, int(stat[1])


def alive(pid: int) -> bool:
    """Not gone, and not a dead process that nobody has taken note of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to be")


def test_record_names_its_lag() -> None:
    assert RequestRecord(0, 1.0, sent_s=1.25).lag_s == 0.25
    assert math.isnan(RequestRecord(0, 1.0).lag_s)
