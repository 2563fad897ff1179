"""A started server: ours by proof, stopped with all its children, and never anybody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.tuner.fake_engine import FakeEngine
from tuner.targets.base import TargetError
from tuner.targets.process import OwnProcess, classify

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


def test_another_process_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    process = serving(tmp_path)
    process.start(timeout_s=30)
    process.stop()
    assert bystander.poll() is None
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


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        ("ValueError: No available memory for the cache blocks.", "configuration"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "configuration"),
        ("max_num_batched_tokens (64) is smaller than max_num_seqs (128)", "configuration"),
        ("OSError: [Errno 98] error while attempting to bind: address already in use", "transient"),
        ("something nobody has seen before", "transient"),
    ],
)
def test_failures_are_classified(tail: str, kind: str) -> None:
    assert classify(tail) == kind


def test_the_port_is_free_again(tmp_path: Path) -> None:
    process = serving(tmp_path)
    process.start(timeout_s=30)
    port = process.port
    process.stop()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
