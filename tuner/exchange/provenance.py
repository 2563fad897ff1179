"""Where a measurement was made: versions and hardware of the machine that sent the load."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import psutil


def provenance() -> dict[str, str]:
    """Of this process, to be kept with what it has just measured; the command without secrets."""
    from tuner.cli.invocation import command_text

    memory_gib = psutil.virtual_memory().total / 2**30
    told = {
        "slotune": version("slotune"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{memory_gib:.0f} GiB",
    }
    if Path(sys.argv[0]).stem in ("tuner", "__main__"):
        told["command"] = command_text()
    return told


def _processor() -> str:
    """The model's name where Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine() or "processor"
