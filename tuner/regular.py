"""Input files are regular ones: reading a device or a pipe may never end, or fill the memory."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import UserError


def check_regular(path: Path) -> None:
    """UserError for a device or a pipe. What is missing or a folder the reader itself tells."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is a device or a pipe; write it into a file first")
