"""One tuner per engine: two that turn the same knobs would measure each other's settings.

Owns a lock file named after the engine's identity. Invariant: the lock goes with its process,
however that ends; it holds between the processes of one machine.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from pathlib import Path

from tuner.errors import UserError


class Lease:
    """Held from take() to release()."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def take(self, identity: str, url: str) -> None:
        """UserError when another tuner turns the knobs of this engine."""
        name = re.sub(r"[^0-9A-Za-z-]", "_", identity)[:64]
        path = Path(tempfile.gettempdir()) / f"slotune-tuner-{name}.lock"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError:  # no such folder here: what apply() set is still verified
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise UserError(
                f"another tuner turns the knobs of {url} now; wait until it has ended"
            ) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the engine free; nothing happens when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
