"""Runs `tuner` as a user would: a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from storage import open_database

ROOT = Path(__file__).parents[3]


def start(
    *words: str, cwd: Path, also: Mapping[str, str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """also: variables of its environment beside the usual ones."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | dict(also or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def tuner(
    *words: str, cwd: Path, timeout_s: float = 120, also: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    process = start(*words, cwd=cwd, also=also)
    out, err = process.communicate(timeout=timeout_s)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def stop_when(
    process: subprocess.Popen[str],
    reached: Callable[[], bool],
    number: signal.Signals,
    *,
    times: int = 1,
    apart_s: float = 0.1,
) -> tuple[str, str]:
    """Send the signal once `reached`, so many times while the process lives; its output."""
    deadline_s = time.monotonic() + 90
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    for left in reversed(range(times)):
        process.send_signal(number)
        time.sleep(apart_s if left else 0)
    return process.communicate(timeout=60)


def stored(database: Path | str, study: str) -> list[str]:
    """Stages of the measurements in the database; empty before there is one."""
    if "://" not in str(database) and not Path(database).exists():
        return []
    try:
        with open_database(database, read_only=True) as opened:
            found = opened.get_study(study)
            rows = opened.list_measurements(study_id=found.id) if found is not None else []
    except Exception:  # the schema is being made
        return []
    return [row.stage for row in rows]
