"""A server process of our own: own process group, free port, kept log, verified identity.

Invariant: signals go only to the group this object started and to processes that carry its mark
(an environment variable of one start), and stop() returns only when all of them are gone: their
port is free again, and whether a GPU's memory is, it tells.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from tuner.targets import http
from tuner.targets.base import TargetError
from tuner.targets.last_words import classify, fault_line, named_fault, worker_killed
from tuner.targets.release import gpu_used_mib, oom_kills, wait_released

POLL_S = 0.2
GRACE_S = 20.0
KILLED_S = 10.0
TAIL_LINES = 15
LOG_BYTES = 256 * 1024
"""How much of a log's end is searched for the fault that its last lines only follow from."""

MARK = "SLOTUNE_STARTED"
_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now; the owner is verified after the start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def next_log(folder: Path, name: str) -> Path:
    """`folder/name-001.log`, or the next number that no earlier start has used."""
    return next(
        path for number in itertools.count(1)
        if not os.path.exists(path := folder / f"{name}-{number:03d}.log")
    )  # fmt: skip


class OwnProcess:
    """One server, started any number of times. command_for(port) is what to execute; environment
    is added to the tuner's own."""

    def __init__(
        self,
        command_for: Callable[[int], Sequence[str]],
        log: Path,
        *,
        health_path: str = "/health",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command_for = command_for
        self._health_path = health_path
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""
        self._before_mib: list[int] = []
        self._oom_kills = 0
        self.log = log
        self.port = 0
        self.start_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check_alive(self, within_s: float = 0.0) -> None:
        """TargetError, with its last words, when the server has ended by itself, or does so in that
        time: one that is shutting down answers no more."""
        deadline_s = time.monotonic() + within_s
        while self.alive and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        if not self.alive:
            raise self._death("the server ended by itself")

    def start(self, timeout_s: float) -> None:
        """Start and wait until it is healthy and ours. TargetError, with nothing left behind."""
        self.port = free_port()
        command = list(self._command_for(self.port))
        self._mark = uuid.uuid4().hex
        self._before_mib, self._oom_kills = gpu_used_mib(), oom_kills()
        began_s = time.monotonic()
        with self._opened_log() as output:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | self._environment | {MARK: self._mark},
                    start_new_session=True,
                    preexec_fn=end_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                raise TargetError(
                    f"cannot execute {command[0]}: {error.strerror or error}", kind="configuration"
                ) from error
        try:
            self._wait_healthy(command[0], timeout_s)
        except BaseException:
            self.stop()
            raise
        self.start_s = time.monotonic() - began_s

    def _opened_log(self) -> BinaryIO:
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            return self.log.open("wb")
        except OSError as error:
            raise TargetError(
                f"the server's log {self.log} cannot be written ({error.strerror or error}): give "
                "--log-dir a folder that can",
                kind="configuration",
            ) from error

    def stop(self) -> bool:
        """Ask all of it to end, then make it; returns when nothing of it is left. Whether its
        memory is free then; where it was not running, that is so."""
        process, self._process = self._process, None
        if process is None:
            return True
        for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILLED_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            for stray in self._family():
                if _group_of(stray.pid) != process.pid:
                    with contextlib.suppress(psutil.Error):
                        stray.send_signal(number)
            if self._gone_within(process, wait_s):
                break
        process.wait()
        return wait_released(self._before_mib)

    def stop_for_another(self) -> None:
        """stop(), and TargetError, transient, where the next start would find its memory taken."""
        if not self.stop():
            raise TargetError(
                "the memory of the ended server is still taken: the GPU's driver has not released "
                "it, or another process uses it"
            )

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines, after the last line that names a fault where that is further up."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - LOG_BYTES))
                text = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        fault = named_fault(text)
        above = [fault] if fault and not any(fault in line for line in text[-lines:]) else []
        return "\n".join([*above, *text[-lines:]])

    def owns_port(self) -> bool:
        """Whether a process of our group listens on the port."""
        for member in self._members():
            try:
                connections = member.net_connections(kind="tcp")
            except psutil.Error:
                continue
            for connection in connections:
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port:
                    return True
        return False

    def _members(self) -> list[psutil.Process]:
        """Processes of our group."""
        family = {member.pid: member for member in self._family()}
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            family |= {member.pid: member for member in [leader, *leader.children(recursive=True)]}
        return [member for member in family.values() if _group_of(member.pid) == self.pid]

    def _family(self) -> list[psutil.Process]:
        """Every process that carries the mark of this start, whatever group it went to."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.pid != os.getpid():
                    found.append(process)
        return found

    def _gone_within(self, process: subprocess.Popen[bytes], wait_s: float) -> bool:
        deadline_s = time.monotonic() + wait_s
        while True:
            if _group_empty_within(process, deadline_s - time.monotonic()) and not self._family():
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.1)

    def _death(self, what: str) -> TargetError:
        """An ended server: its exit code, its last words, whose fault it was."""
        code = self._process.poll() if self._process is not None else None
        tail = self.log_tail()
        kind, why = classify(tail), fault_line(tail)
        killed = code == -signal.SIGKILL or worker_killed(tail)
        if killed and oom_kills() > self._oom_kills:
            kind, why = "configuration", "killed by the kernel for want of memory"
        elif code == -signal.SIGKILL and kind != "configuration":
            why = "killed from outside"
        return TargetError(
            f"{what} (exit code {code}): {why} (log: {self.log})", kind=kind, log_tail=tail
        )

    def _wait_healthy(self, name: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not http.answers(self.url + self._health_path):
            if not self.alive:
                raise self._death(f"{Path(name).name} ended while starting")
            if time.monotonic() > deadline_s:
                raise TargetError(
                    f"{Path(name).name} did not answer within {timeout_s:.0f} s of its start",
                    log_tail=self.log_tail(),
                )
            time.sleep(POLL_S)
        if not self.owns_port():
            raise TargetError(
                f"port {self.port} is answered by a server that was not started here",
                log_tail=self.log_tail(),
            )


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _group_empty_within(process: subprocess.Popen[bytes], wait_s: float) -> bool:
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        process.poll()  # reaps the leader, which else would count as a member
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def end_with_parent() -> None:
    """In the child: SIGTERM when the tuner dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
