"""Ctrl-C, SIGTERM and a terminal that is closed: the first ends the work, and what follows at once
is the same wish.

Invariant: a signal that follows another within BURST_S raises nothing, so that nobody who presses
Ctrl-C three times breaks off what brings the measured to safety, or sees a traceback of it.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BURST_S = 1.0
"""In that time nobody has read what one more signal would do."""

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None

_last_s = -math.inf


def is_repeated() -> bool:
    """Whether the signal that has just come repeats one that counted; if not, it counts. To be
    asked once a signal."""
    global _last_s
    now_s = time.monotonic()
    if now_s - _last_s < BURST_S:
        return True
    _last_s = now_s
    return False


def forget() -> None:
    """The next signal counts."""
    global _last_s
    _last_s = -math.inf


def interrupt() -> None:
    """Raises KeyboardInterrupt at a signal that counts."""
    if not is_repeated():
        raise KeyboardInterrupt


def install(take: Callable[[], object], numbers: Iterable[int] = SIGNALS) -> dict[int, Handler]:
    """take is called at each of the signals, but for those that this process ignores. What handled
    them before; nothing is changed in other threads than the main one."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, lambda *_: take()) for number in heard}


@contextlib.contextmanager
def handled_by(take: Callable[[], object], numbers: Iterable[int] = SIGNALS) -> Iterator[None]:
    """install() for a while: the handlers of before are back afterwards."""
    previous = install(take, numbers)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def own_process() -> None:
    """interrupt() at every signal from now on; none is heard when all else has ended, so that the
    exit code is the command's."""
    install(interrupt)
    atexit.register(_ignore)  # before those of modules that load later: it is called after them


def _ignore() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_process(exit_code: int) -> None:
    """For what is left to do after the work: a signal that counts ends it at once, wordlessly."""
    install(lambda: None if is_repeated() else os._exit(exit_code))
