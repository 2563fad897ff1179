"""Workers as processes of this machine, without Ray: heard, stopped, and never left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tuner.executor.crew import Crew, WorkerLostError
from tuner.executor.worker import Heard, Worker

SAYS_AND_ENDS = "import sys; print('one', file=sys.stderr); print(sys.stdin.read()); sys.exit(1)"
WAITS = "import sys, time; print('here', file=sys.stderr, flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
REFUSES = "import sys; print('tuner x: wrong\\nbecause', file=sys.stderr); sys.exit(2)"
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
LEAVES_A_CHILD = (
    "import subprocess, sys; subprocess.Popen(['sleep', '30']); print('tuner x: gone', "
    "file=sys.stderr); sys.exit(2)"
)


def worker(code: str, order: str = "") -> Worker:
    return Worker(["-c", code], order, "/no/such/folder")


class Told:
    """What a crew tells; interrupts: the first line comes with Ctrl-C."""

    def __init__(self, *, interrupts: bool = False) -> None:
        self.lines: list[tuple[str, str]] = []
        self.interrupts = interrupts

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        if self.interrupts:
            raise KeyboardInterrupt


def test_what_each_says_comes_with_its_name_and_its_report_is_kept() -> None:
    told = Told()
    ends = Crew({"a": worker(SAYS_AND_ENDS, "the order")}, told, "tuner x: ").run()
    assert told.lines == [("a", "one")]
    assert [(end.name, end.exit_code, end.report) for end in ends] == [("a", 1, "the order\n")]


def test_one_that_dies_is_told_and_the_others_go_on() -> None:
    told = Told()
    ends = Crew({"a": worker(DIES), "b": worker(SAYS_AND_ENDS, "x")}, told, "tuner x: ").run()
    assert {end.name for end in ends} == {"a", "b"}
    died = next(end for end in ends if end.name == "a")
    assert died.fault == "died: killed by SIGKILL"
    if ends[0].name == "a":
        assert ("a", "died: killed by SIGKILL; the study goes on with 1 worker") in told.lines


def test_the_sentence_a_worker_ends_with_is_its_fault_and_not_told_twice() -> None:
    told = Told()
    (end,) = Crew({"a": worker(REFUSES)}, told, "tuner x: ").run()
    assert end.fault == "wrong\nbecause"
    assert told.lines == []


def test_a_pipe_that_a_stray_child_holds_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.executor.worker.DRAINED_S", 0.5)
    began_s = time.monotonic()
    (end,) = Crew({"a": worker(LEAVES_A_CHILD)}, Told(), "tuner x: ").run()
    assert end.fault == "gone"
    assert time.monotonic() - began_s < 25


class Lost:
    def poll(self) -> Heard:
        raise WorkerLostError("its machine is gone")

    def stop(self) -> None: ...


def test_one_whose_machine_is_gone_has_died() -> None:
    (end,) = Crew({"a": Lost()}, Told(), "tuner x: ").run()
    assert end.fault == "died: its machine is gone"


class Garbled(Lost):
    def poll(self) -> Heard:
        raise ValueError("no such answer")


@pytest.mark.timeout(30)
def test_one_that_cannot_be_heard_is_not_waited_for() -> None:
    (end,) = Crew({"a": Garbled()}, Told(), "tuner x: ").run()
    assert end.fault == "died: it cannot be heard: ValueError: no such answer"


class Killed(Lost):
    def poll(self) -> Heard:
        return Heard(exit_code=-(signal.SIGRTMIN + 3))


@pytest.mark.skipif(sys.platform != "linux", reason="real-time signals have numbers of their own")
def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    (end,) = Crew({"a": Killed()}, Told(), "tuner x: ").run()
    assert end.fault == f"died: killed by signal {signal.SIGRTMIN + 3}"


def test_stop_ends_all_as_ctrl_c_would() -> None:
    crew = Crew({"a": worker(WAITS), "b": worker(WAITS)}, Told(interrupts=True), "tuner x: ")
    with pytest.raises(KeyboardInterrupt):
        crew.run()
    began_s = time.monotonic()
    assert crew.stop()
    assert time.monotonic() - began_s < 20


def test_one_that_does_not_end_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.executor.crew.END_S", 0.5)
    stubborn = worker(STUBBORN)
    crew = Crew({"a": stubborn}, Told(interrupts=True), "tuner x: ")
    with pytest.raises(KeyboardInterrupt):
        crew.run()
    assert not crew.stop()
    stubborn._process.kill()


HOLDS_A_WORKER = f"""
import sys, time
from tuner.executor.worker import Worker
worker = Worker(["-c", {WAITS!r}], "", ".")
while not worker.poll().lines:
    pass
print(worker._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a child with its parent")
def test_kill_9_of_its_holder_ends_a_worker() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_WORKER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())
    held = psutil.Process(pid)
    holder.send_signal(signal.SIGKILL)
    holder.wait(30)
    held.wait(30)
    assert not psutil.pid_exists(pid)
