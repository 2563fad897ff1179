"""Start slotune's own programs as a user would, each in a process group of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Program:
    """A started program: its output so far, and the URL of its ready line."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not (found := re.search(r"ready: (http://\S+)", self.output())):
            assert self.process.poll() is None, f"ended while starting:\n{self.output()[-2000:]}"
            assert time.monotonic() < deadline, f"not ready:\n{self.output()[-2000:]}"
            time.sleep(0.2)
        self.url = found.group(1).rstrip("/")

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextlib.contextmanager
def running(
    module: str, *arguments: str, log: Path, ready_timeout_s: float = 120.0
) -> Iterator[Program]:
    """`python -m module arguments`, up until the block ends. Yields after its ready line."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    program = Program(process, log)
    try:
        program.wait_ready(ready_timeout_s)
        yield program
    finally:
        program.stop()
