"""What the generator's own process may use, and what it asks the system and the interpreter for."""

from __future__ import annotations

import contextlib
import errno
import gc
import resource
from collections.abc import Iterator

OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
"""No fault of the server, whichever of its addresses is tried."""

LIMITS = {
    **dict.fromkeys(OUT_OF_FILES, ("too many open files", "ulimit -n")),
    errno.EADDRNOTAVAIL: ("no local port is free", "net.ipv4.ip_local_port_range"),
}
"""errno → what has run out, and where it is set."""


def allow_connections() -> None:
    """As many open files as the system grants: each request in flight holds a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse their own hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def no_long_collections() -> Iterator[None]:
    """Only young garbage is collected: going through all records would stall the loop."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(thresholds[0], thresholds[1], 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
