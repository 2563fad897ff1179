"""How a load ends, in one process and in several."""

from __future__ import annotations

import asyncio
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
    HANG,
    FakeServer,
    Reply,
    answer,
    steps,
    text,
)
from tests.tuner.load.driving import plan
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load import Interrupted, LoadBrokenError, LoadResult, generate
from tuner.load.connection import Connection
from tuner.load.generator import Generator

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize("taken", [True, False])
def test_sigterm_inside_a_callback_of_the_loop(
    taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a handler raises there, the loop would report and forget. taken: the caller has one."""
    heard, received = [], Connection.data_received

    def terminated(connection: Connection, data: bytes) -> None:
        if taken and not heard:
            heard.append(True)
            signal.raise_signal(signal.SIGTERM)
        received(connection, data)

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Connection, "data_received", terminated)
    before = signal.signal(signal.SIGTERM, interrupt if taken else signal.SIG_DFL)
    try:
        with FakeServer(lambda _, body: answer(body)) as server:
            wanted = plan(server, "prompt=8,output=2,concurrency=2", 2.0 if taken else 0.3)
            if taken:
                with pytest.raises(Interrupted) as caught:
                    generate(wanted)
                assert caught.value.load.stopped_early
            else:
                assert generate(wanted).records
        assert signal.getsignal(signal.SIGTERM) is (interrupt if taken else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_from_the_terminal(count: int) -> None:
    """The signal goes to the whole group, as a terminal sends it; nothing stays behind."""
    code = (
        "import sys, time\n"
        "from tuner.endpoint import Endpoint\n"
        "from tuner.load import Interrupted, LoadPlan, generate\n"
        "from tuner.workload import parse_workload\n"
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
        "from tuner.endpoint import Endpoint\n"
        "from tuner.load import LoadPlan, generate\n"
        "from tuner.workload import parse_workload\n"
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
