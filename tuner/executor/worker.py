"""One worker: a sitting of the study as a process of its own, on whatever machine it was put.

Owns the process, what it says, and its end. Invariant: it lives no longer than the process that
holds this object, also under kill -9 (and the sitting's server no longer than the sitting).
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from tuner.targets.process import end_with_parent

POLL_S = 1.0
DRAINED_S = 5.0
"""How long the ends of its pipes are waited for, which a stray child may keep open."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What a worker has said since it was asked last. exit_code None: it is still at work, else
    report is all that it has written to stdout."""

    lines: Sequence[str] = ()
    exit_code: int | None = None
    report: str = ""


class Worker:
    """command is started in folder, where there is one of that name, with order on its stdin."""

    def __init__(self, command: Sequence[str], order: str, folder: str) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._report: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder if os.path.isdir(folder) else tempfile.gettempdir(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_ends_with_us if sys.platform == "linux" else None,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            _reading(self._process.stderr, self._lines.put),
            _reading(self._process.stdout, self._report.append),
        ]
        with contextlib.suppress(BrokenPipeError):  # it has ended at once, and says why
            self._process.stdin.write(order)
            self._process.stdin.close()

    def where(self) -> str:
        return socket.gethostname()

    def poll(self, wait_s: float = POLL_S) -> Heard:
        """What it has said, waiting for the first line for so long."""
        lines = []
        with contextlib.suppress(queue.Empty):
            lines.append(self._lines.get(timeout=wait_s))
        exit_code = self._process.poll()
        if exit_code is not None:
            for reader in self._readers:
                reader.join(DRAINED_S)
        while not self._lines.empty():
            lines.append(self._lines.get())
        report = "" if exit_code is None else "".join(self._report)
        return Heard([line.rstrip("\n") for line in lines], exit_code, report)

    def stop(self) -> None:
        """Ask it to end as Ctrl-C would: it stops its server, and says what was kept."""
        self._process.send_signal(signal.SIGTERM)


def _ends_with_us() -> None:
    """In the child: Ray blocks signals in what it starts, which must not reach the server."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    end_with_parent()


def _reading(stream: IO[str], take: Callable[[str], None]) -> threading.Thread:
    def read() -> None:
        for line in stream:
            take(line)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
