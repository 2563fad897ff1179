"""Ctrl-C and SIGTERM held back while what was measured is brought to safety.

Invariant: inside, the first signal changes nothing but a line on stderr, the second is Ctrl-C; the
handlers of before are back afterwards. In other threads than the main one nothing changes.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Raises KeyboardInterrupt at the second signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = 0

    def take(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came > 1:
            raise KeyboardInterrupt
        print("tuner: keeping what was measured; once more ends it at once", file=sys.stderr)

    previous = [signal.signal(number, take) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, previous, strict=True):
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
