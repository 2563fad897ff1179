"""The streams of a process: there, whatever the shell has closed, and stderr never in the work's
way."""

from __future__ import annotations

import contextlib
import io
import os
import sys


class Progress(io.TextIOWrapper):
    """A text stream that drops what cannot be written: no work ends because its log is on a full
    disk, or nobody reads it any more."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def have_streams() -> None:
    """A stream that was closed at the start (`2>&-`) is None, which nothing here expects; and the
    name of a file may hold what no text can, which stdout then shows as stderr does."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        encoding, errors = sys.stderr.encoding, sys.stderr.errors
        sys.stderr = Progress(
            sys.stderr.detach(), encoding=encoding, errors=errors, line_buffering=True
        )
