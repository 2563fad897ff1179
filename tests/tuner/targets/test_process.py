"""A started server: ours by proof, stopped with all its children, and never anybody else's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.tuner.fake_engine import FakeEngine
from tuner.targets import http
from tuner.targets.base import TargetError
from tuner.targets.last_words import classify, fault_line
from tuner.targets.process import OwnProcess, next_log
from tuner.targets.release import wait_released

ENGINE = [sys.executable, "-m", "tests.tuner.fake_engine"]


def serving(tmp_path: Path, *flags: str) -> OwnProcess:
    return OwnProcess(lambda port: [*ENGINE, "--port", str(port), *flags], tmp_path / "log")


def test_starts_in_a_group_of_its_own_and_stops_all_of_it(tmp_path: Path) -> None:
    shell = f"sleep 300 & exec {sys.executable} -m tests.tuner.fake_engine --port $0"
    process = OwnProcess(lambda port: ["sh", "-c", shell, str(port)], tmp_path / "log")
    process.start(timeout_s=30)
    group = process.pid
    assert os.getpgid(group) == group != os.getpgid(0)
    assert process.owns_port()
    children = psutil.Process(group).children()
    assert [child.name() for child in children] == ["sleep"]
    process.stop()
    assert not psutil.pid_exists(group)
    assert not children[0].is_running() or children[0].status() == psutil.STATUS_ZOMBIE
    assert "ready:" in process.log_tail()


def test_other_servers_of_the_same_program_are_left_alone(tmp_path: Path) -> None:
    """Somebody else's, and another one of ours."""
    bystander = subprocess.Popen([*ENGINE, "--port", "0"], stdout=subprocess.PIPE, text=True)
    other, process = serving(tmp_path / "other"), serving(tmp_path)
    try:
        assert bystander.stdout is not None
        url = bystander.stdout.readline().split()[1]
        other.start(timeout_s=30)
        process.start(timeout_s=30)
        process.stop()
        assert not process.alive
        assert bystander.poll() is None
        assert http.answers(f"{url}/health")
        assert other.alive
        assert http.answers(f"{other.url}/health")
    finally:
        other.stop()
        bystander.kill()
        bystander.wait()


def test_a_foreign_server_on_the_port_is_never_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port was free when it was looked for, and taken by somebody else since."""
    with FakeEngine() as other:
        monkeypatch.setattr("tuner.targets.process.free_port", lambda: other.port)
        process = OwnProcess(lambda port: ["sleep", "300"], tmp_path / "log")
        with pytest.raises(TargetError, match="was not started here"):
            process.start(timeout_s=10)
        assert not process.alive


def test_a_death_at_start_tells_its_last_words(tmp_path: Path) -> None:
    process = serving(tmp_path, "--refuse", "torch.OutOfMemoryError: CUDA out of memory")
    with pytest.raises(TargetError, match=r"exit code 1.*out of memory") as caught:
        process.start(timeout_s=30)
    assert caught.value.kind == "configuration"
    assert "out of memory" in caught.value.log_tail


def test_a_start_has_a_limit_and_leaves_nothing(tmp_path: Path) -> None:
    process = OwnProcess(lambda port: ["sleep", "300"], tmp_path / "log")
    began_s = time.monotonic()
    with pytest.raises(TargetError, match="did not answer within 1 s"):
        process.start(timeout_s=1)
    assert time.monotonic() - began_s < 20
    assert not process.alive


def test_what_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.targets.process.GRACE_S", 0.5)
    shell = f"trap '' TERM; {sys.executable} -m tests.tuner.fake_engine --port $0; sleep 300"
    process = OwnProcess(lambda port: ["sh", "-c", shell, str(port)], tmp_path / "log")
    process.start(timeout_s=30)
    group = process.pid
    process.stop()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for log in (tmp_path / "file" / "log", tmp_path):
        process = OwnProcess(lambda port: [*ENGINE, "--port", str(port)], log)
        with pytest.raises(TargetError, match=r"cannot be written .*--log-dir"):
            process.start(timeout_s=10)
        assert not process.alive


def test_no_such_program(tmp_path: Path) -> None:
    process = OwnProcess(lambda port: ["/no/such/program"], tmp_path / "log")
    with pytest.raises(TargetError, match="cannot execute /no/such/program"):
        process.start(timeout_s=1)


def test_the_port_is_free_again(tmp_path: Path) -> None:
    process = serving(tmp_path)
    process.start(timeout_s=30)
    port = process.port
    process.stop()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_child_that_left_the_group_is_stopped_too(tmp_path: Path) -> None:
    process = serving(tmp_path, "--stray", str(tmp_path / "stray"))
    process.start(timeout_s=30)
    stray = int((tmp_path / "stray").read_text())
    assert os.getpgid(stray) != process.pid
    os.kill(process.pid, signal.SIGKILL)  # its parent cannot end it any more
    process.stop()
    assert not psutil.pid_exists(stray) or psutil.Process(stray).status() == psutil.STATUS_ZOMBIE


def test_a_killed_server_is_told_from_one_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kills, kind, why in (
        ([3, 3], "transient", "from outside"),
        ([3, 4], "configuration", "want of memory"),
    ):
        readings = iter(kills)
        monkeypatch.setattr("tuner.targets.process.oom_kills", lambda known=readings: next(known))
        process = serving(tmp_path)
        process.start(timeout_s=30)
        os.kill(process.pid, signal.SIGKILL)
        while process.alive:
            time.sleep(0.01)
        with pytest.raises(TargetError, match=why) as caught:
            process.check_alive()
        assert caught.value.kind == kind
        process.stop()


def test_a_killed_tuner_leaves_no_server(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tuner.targets.process import OwnProcess\n"
        "command = [sys.executable, '-m', 'tests.tuner.fake_engine', '--port']\n"
        "process = OwnProcess(lambda port: [*command, str(port)], Path(sys.argv[1]))\n"
        "process.start(60)\nprint(process.pid, flush=True)\ntime.sleep(300)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    tuner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    server = psutil.Process(int(tuner.stdout.readline()))
    tuner.kill()
    tuner.wait()
    gone, _ = psutil.wait_procs([server], timeout=60)
    assert gone == [server]


def test_the_fault_is_found_above_the_last_lines(tmp_path: Path) -> None:
    process = serving(tmp_path)
    last = "\n".join(f"shutting down {i}" for i in range(40))
    process.log.write_text(f"starting\ntorch.OutOfMemoryError: CUDA out of memory\n{last}\n")
    assert process.log_tail().startswith("torch.OutOfMemoryError")
    assert classify(process.log_tail()) == "configuration"
    assert fault_line(process.log_tail()).endswith("CUDA out of memory")


def test_each_start_has_a_log_of_its_own(tmp_path: Path) -> None:
    first = next_log(tmp_path, "vllm")
    first.write_text("")
    assert (first.name, next_log(tmp_path, "vllm").name) == ("vllm-001.log", "vllm-002.log")


def test_memory_is_waited_for() -> None:
    readings = iter([[9000], [9000], [1100]])
    assert wait_released([1000], lambda: next(readings), timeout_s=30)
    assert not wait_released([1000], lambda: [9000], timeout_s=0.1)
    assert wait_released([], lambda: [9000], timeout_s=0)


def test_a_log_of_a_name_too_long_is_told(tmp_path: Path) -> None:
    log = next_log(tmp_path / ("x" * 300), "engine")
    with pytest.raises(TargetError, match=r"cannot be written .* give --log-dir a folder"):
        OwnProcess(lambda port: ["true"], log).start(1.0)
