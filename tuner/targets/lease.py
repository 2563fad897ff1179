"""One tuner per engine: two that turn the same knobs would measure each other's settings.

Owns a lock file named after the engine's identity. Invariant: the lock goes with its process,
however that ends; it holds between the processes of one machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from pathlib import Path

from tuner.errors import UserError


class Lease:
    """Held from take() to release()."""

    def __init__(self) -> None:
        self._held: tuple[int, Path] | None = None

    def take(self, identity: str, url: str) -> None:
        """UserError when another tuner turns the knobs of this engine."""
        name = re.sub(r"[^0-9A-Za-z-]", "_", identity)[:64]
        path = Path(tempfile.gettempdir()) / f"slotune-tuner-{name}.lock"
        try:
            descriptor = _locked(path)
        except BlockingIOError:
            raise UserError(
                f"another tuner turns the knobs of {url} now; wait until it has ended"
            ) from None
        except OSError:  # no such folder here: what apply() set is still verified
            return
        self._held = descriptor, path

    def release(self) -> None:
        """Give the engine free; nothing happens when it is not held."""
        if self._held is not None:
            (descriptor, path), self._held = self._held, None
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor that locks the file that stands at path; BlockingIOError when it is locked."""
    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _stands_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it between open and lock


def _stands_at(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
