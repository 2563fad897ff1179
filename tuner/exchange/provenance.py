"""Where a measurement was made: versions and hardware of the machine that sent the load."""

from __future__ import annotations

import contextlib
import os
import platform
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import psutil

GPUS = Path("/proc/driver/nvidia/gpus")


def provenance(command: str = "", server: str = "") -> dict[str, str]:
    """Of this process, to be kept with what it has just measured. command: what the user gave,
    without secrets; server: engine and version measured; left out where they are not known."""
    told = {"command": command, "server": server}
    return _machine() | {name: text for name, text in told.items() if text}


def machine_text(told: Mapping[str, str]) -> str:
    """A kept provenance in words, without its command."""
    where = [told[name] for name in ("processor", "gpus", "memory", "platform") if name in told]
    made = [f"{name} {told[name]}" for name in ("slotune", "python") if name in told]
    served = [f"measuring {told['server']}"] if "server" in told else []
    return ", ".join([*where, *made, *served])


@cache
def _machine() -> dict[str, str]:
    memory_gib = psutil.virtual_memory().total / 2**30
    gpus = _gpus()
    return {
        "slotune": version("slotune"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{memory_gib:.0f} GiB",
        **({"gpus": gpus} if gpus else {}),
    }


def _gpus() -> str:
    """`8 × NVIDIA H100 80GB HBM3`, "" where the driver lists none."""
    names: Counter[str] = Counter()
    for information in sorted(GPUS.glob("*/information")):
        with contextlib.suppress(OSError):
            lines = information.read_text(encoding="utf-8").splitlines()
            names.update(line.partition(":")[2].strip() for line in lines if line[:6] == "Model:")
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def _processor() -> str:
    """The model's name where Linux tells it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine() or "processor"
