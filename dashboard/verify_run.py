"""`tuner verify` as a process of its own, started from a page: one at a time, its output watched.

Invariant: it is always ended by an interrupt, never killed, so that the server gets its settings
back; it outlives a page that is closed, and ends with the dashboard.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

END_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows of the newest verification. result: its JSON, {} while there is none;
    told: its last lines on stderr, newest last; code: how it ended, None while it runs."""

    node: str
    began_s: float
    told: tuple[str, ...]
    code: int | None
    result: dict[str, Any]

    @property
    def running(self) -> bool:
        return self.code is None

    @property
    def fault(self) -> str:
        """Why it ended without an answer; "" otherwise."""
        if self.code is None or self.result:
            return ""
        own = [line for line in self.told if line.startswith("tuner")]
        return (own or list(self.told) or [f"it ended with exit code {self.code}"])[-1]


def words(url: str, node: str, workload: str, slos: Sequence[str], database: str) -> list[str]:
    """The command line, as a person would type it."""
    found = ["tuner", "verify", "--url", url, "--node", node, "--workload", workload]
    for slo in slos:
        found += ["--slo", slo]
    return [*found, "--database", database]


class Verifications:
    """Those started by this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._node, self._began_s = "", 0.0
        atexit.register(self.close)

    def start(self, node: str, command: Sequence[str]) -> bool:
        """False when one runs already."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return False
            folder = self._folder = Path(tempfile.mkdtemp(prefix="slotune-verify-"))
            with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", *command, "--json", "--no-config"],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                )  # fmt: skip
            self._node, self._began_s = node, time.time()
            return True

    def view(self) -> View | None:
        """Of the newest one; None before the first."""
        with self._lock:
            if self._process is None or self._folder is None:
                return None
            code = self._process.poll()
            told = (self._folder / "err").read_text(errors="replace").splitlines()
            result: dict[str, Any] = {}
            if code is not None:
                with contextlib.suppress(json.JSONDecodeError):
                    result = json.loads((self._folder / "out").read_text(errors="replace"))
            lines = tuple(line.strip() for line in told if line.strip())
            return View(self._node, self._began_s, lines[-8:], code, result)

    def stop(self) -> None:
        """Interrupt it; it then puts the server's settings back by itself."""
        with self._lock:
            self._interrupt()

    def close(self) -> None:
        """Interrupt it and wait until it has put the settings back."""
        with self._lock:
            self._interrupt()
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_TIMEOUT_S)

    def _interrupt(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)
