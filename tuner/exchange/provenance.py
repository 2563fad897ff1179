"""Where a measurement was made: versions and hardware of the machine that sent the load."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil


def provenance(command: str = "") -> dict[str, str]:
    """Of this process, to be kept with what it has just measured. command: what the user gave,
    without secrets; left out where it is not known."""
    memory_gib = psutil.virtual_memory().total / 2**30
    return {
        "slotune": version("slotune"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{memory_gib:.0f} GiB",
        **({"command": command} if command else {}),
    }


def _processor() -> str:
    """The model's name where Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine() or "processor"
