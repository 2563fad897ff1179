"""Faults of a running engine that no knob plants: its loop stands, its host is slow, and a page
that joins two engines as replicas of one target."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.beside import beside

_DETACH, _SEIZE, _INTERRUPT = 17, 0x4206, 0x4207  # PTRACE_*, of Linux' sys/ptrace.h
_ANY_THREAD = 0x40000000  # __WALL
TRIES = 50
ANSWER_S = 1.0


def _trace(request: int, thread: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    call.restype = ctypes.c_long
    if call(request, thread, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def stopped(thread: int) -> Iterator[None]:
    """One thread of another process stands still inside the block. PermissionError where tracing
    is not allowed."""
    _trace(_SEIZE, thread)
    try:
        _trace(_INTERRUPT, thread)
        os.waitpid(thread, _ANY_THREAD)
        yield
    finally:
        _trace(_DETACH, thread)


@contextlib.contextmanager
def stalled(pid: int, url: str) -> Iterator[None]:
    """The engine's loop stands while its HTTP front goes on.

    Both live in one process, so that only the thread of the loop is stopped: at a moment when it
    computes and holds no lock of the interpreter, as in a kernel that never returns.
    """
    thread = busiest_thread(pid)
    for _ in range(TRIES):
        with stopped(thread):
            if _answers(url):
                yield
                return
        time.sleep(0.01)
    raise AssertionError("the loop's thread held the interpreter at every try")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=ANSWER_S):
            return True
    except OSError:
        return False


def busiest_thread(pid: int, for_s: float = 1.0) -> int:
    """The thread that has computed most in for_s: the loop's, while requests run."""
    before = _ticks(pid)
    time.sleep(for_s)
    after = _ticks(pid)
    return max(after, key=lambda thread: after[thread] - before.get(thread, 0))


def _ticks(pid: int) -> dict[int, int]:
    """CPU time of each thread."""
    found = {}
    for entry in Path(f"/proc/{pid}/task").iterdir():
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        found[int(entry.name)] = int(fields[11]) + int(fields[12])
    return found


@contextlib.contextmanager
def halted(pid: int) -> Iterator[None]:
    """The whole process stands still inside the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def starved(pid: int, run_s: float = 0.02, stand_s: float = 0.18) -> Iterator[None]:
    """The process has a CPU for a tenth of the time, as beside neighbours on a full host."""

    def cycle(stop: threading.Event) -> None:
        while not stop.wait(run_s):
            with halted(pid):
                time.sleep(stand_s)

    with beside(cycle):
        yield


@contextlib.contextmanager
def joined(urls: Sequence[str]) -> Iterator[str]:
    """URL of a page that holds the metrics of all these engines, each under its own `engine`, as a
    server with data-parallel replicas exports them; its /server_info is the first engine's."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):  # an engine or the scraper was too slow: no answer
                if self.path == "/metrics":
                    text = "".join(_page(url, number) for number, url in enumerate(urls))
                else:
                    text = _get(urls[0] + self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """The test's output is not the place for it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _page(url: str, number: int) -> str:
    return _get(f"{url}/metrics").replace('engine="0"', f'engine="{number}"')


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=3) as answer:
        text: str = answer.read().decode()
        return text
