"""Ctrl-C and SIGTERM held back while what was measured is brought to safety.

Invariant: inside, the first signal changes nothing but a line on stderr, and what follows at once
changes nothing at all; a later one is Ctrl-C. In other threads than the main one nothing changes.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator

from tuner import interrupts


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Raises KeyboardInterrupt at a signal that comes when the line could be read."""
    told_s = math.inf

    def take() -> None:
        nonlocal told_s
        interrupts.is_repeated()
        if time.monotonic() - told_s >= interrupts.BURST_S:
            raise KeyboardInterrupt
        if told_s == math.inf:
            told_s = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the signal came amid a write to stderr
                print(
                    "tuner: keeping what was measured; once more ends it at once", file=sys.stderr
                )

    with interrupts.handled_by(take):
        yield
