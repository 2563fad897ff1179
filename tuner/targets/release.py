"""Whether the memory of an ended server is really free, where that is not the kernel's promise.

A process's RAM is free when the process is gone; a GPU's driver frees its memory a little later.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

SLACK_MIB = 256
RELEASE_S = 30.0


def gpu_used_mib() -> list[int]:
    """Used memory of each GPU that is ours (CUDA_VISIBLE_DEVICES); [] without one or its tool."""
    tool, ours = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if tool is None or ours == "":
        return []
    query = [tool, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if ours is not None:
        query.append(f"--id={ours}")
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        return [int(line) for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def wait_released(
    before_mib: Sequence[int],
    read_mib: Callable[[], Sequence[int]] = gpu_used_mib,
    timeout_s: float = RELEASE_S,
) -> bool:
    """Wait until every GPU holds about what it held before; False when it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while before_mib:
        now_mib = read_mib()
        if all(now <= was + SLACK_MIB for now, was in zip(now_mib, before_mib, strict=False)):
            return True
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.2)
    return True


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since boot; 0 where not told."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
