"""A server process of our own: own process group, free port, kept log, verified identity.

Invariant: signals go only to the group this object started, and stop() returns only when that
group is empty, so that its memory and port are free again.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from tuner.targets import http
from tuner.targets.base import FailureKind, TargetError

POLL_S = 0.2
GRACE_S = 20.0
TAIL_LINES = 15
_PR_SET_PDEATHSIG = 1

_CONFIGURATION_FAULT = re.compile(
    r"out of memory|OutOfMemory|cannot allocate memory|no available memory|"
    r"larger than the (?:maximum|available)|not enough (?:KV|memory)|no memory for|"
    r"max_num_batched_tokens|chunk[-_]size .*must|must be (?:at least|between|in|a power)|"
    r"unrecognized arguments|invalid choice|validation error|Killed",
    re.IGNORECASE,
)
_TRANSIENT_FAULT = re.compile(
    r"address already in use|port .* in use|Errno 98|temporarily", re.IGNORECASE
)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now; the owner is verified after the start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class OwnProcess:
    """One started server. command_for(port) is what to execute."""

    def __init__(
        self,
        command_for: Callable[[int], Sequence[str]],
        log: Path,
        *,
        health_path: str = "/health",
    ) -> None:
        self._command_for = command_for
        self._health_path = health_path
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check_alive(self) -> None:
        """TargetError, with its last words, when the server has ended by itself."""
        code = self._process.poll() if self._process is not None else None
        if not self.alive:
            tail = self.log_tail()
            raise TargetError(
                f"the server ended by itself (exit code {code}): {last_line(tail)}",
                kind=classify(tail),
                log_tail=tail,
            )

    def start(self, timeout_s: float) -> None:
        """Start and wait until it is healthy and ours. TargetError, with nothing left behind."""
        self.port = free_port()
        command = list(self._command_for(self.port))
        with self._opened_log() as output:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
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

    def stop(self) -> None:
        """Ask the group to end, then make it; returns when it is empty."""
        process, self._process = self._process, None
        if process is None:
            return
        for signal_number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 10.0)):
            try:
                os.killpg(process.pid, signal_number)
            except ProcessLookupError:
                break
            if _group_empty_within(process, wait_s):
                break
        process.wait()

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

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
        try:
            leader = psutil.Process(self.pid)
            family = [leader, *leader.children(recursive=True)]
        except psutil.Error:
            return []
        return [member for member in family if _group_of(member.pid) == self.pid]

    def _wait_healthy(self, name: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not http.answers(self.url + self._health_path):
            if not self.alive:
                code = self._process.poll() if self._process is not None else None
                tail = self.log_tail()
                raise TargetError(
                    f"{Path(name).name} ended while starting (exit code {code}): {last_line(tail)}",
                    kind=classify(tail),
                    log_tail=tail,
                )
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


def classify(log_tail: str) -> FailureKind:
    """Whose fault a dead server is: its settings', or the moment's."""
    if _TRANSIENT_FAULT.search(log_tail):
        return "transient"
    return "configuration" if _CONFIGURATION_FAULT.search(log_tail) else "transient"


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


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


def _end_with_parent() -> None:
    """In the child: SIGTERM when the tuner dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
