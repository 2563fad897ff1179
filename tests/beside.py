"""Work that goes on beside a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

END_S = 300.0


@contextlib.contextmanager
def beside(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Each in a thread of its own; when the block ends the event is set, upon which they return."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(END_S)
