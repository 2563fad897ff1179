"""Compiles fused.cpp once for this CPU and loads it; None where that is not possible.

The library lies in the user's cache folder under a name made of source, compiler flags and CPU, so
that another machine or version never loads a stale one. It is linked to torch's own OpenMP
library: two thread pools in one process would fight for the cores.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

log = logging.getLogger("engine")

SOURCE = Path(__file__).with_name("fused.cpp")
FLAGS = (
    "-O3", "-march=native", "-std=c++17", "-fPIC", "-fopenmp", "-fno-math-errno",
    "-ffp-contract=fast", "-Wno-psabi",
)  # fmt: skip
COMPILE_TIMEOUT_S = 120.0


@functools.cache
def load() -> ctypes.CDLL | None:
    """The compiled kernels, or None (said once in the log) when there is no way to have them."""
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    openmp = _torch_openmp()
    if openmp is None:
        log.info("fused CPU kernels: torch carries no OpenMP library to link with; using torch")
        return None
    library = _cache_folder() / f"fused-{_fingerprint(openmp)}.so"
    if not library.exists():
        if compiler is None:
            log.warning("fused CPU kernels: no C++ compiler (Debian: g++); using slower torch ones")
            return None
        error = _compile(compiler, openmp, library)
        if error:
            log.warning("fused CPU kernels do not compile, using torch: %s", error)
            return None
    try:
        return _declare(ctypes.CDLL(str(library)))
    except OSError as error:
        log.warning("fused CPU kernels do not load, using torch: %s", error)
        return None


def _torch_openmp() -> Path | None:
    import torch

    folder = Path(torch.__file__).parent / "lib"
    found = sorted([*folder.glob("libgomp*.so*"), *folder.glob("libiomp5*.so*")])
    return found[0] if found else None


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "slotune"


def _fingerprint(openmp: Path) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        cpu = platform.processor()
    text = "\n".join((SOURCE.read_text(), " ".join(FLAGS), cpu, openmp.name))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(compiler: str, openmp: Path, library: Path) -> str:
    """Build into place atomically; the error's first lines, or "" when it worked."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            object_file, built = Path(folder, "fused.o"), Path(folder, "fused.so")
            _run([compiler, *FLAGS, "-c", str(SOURCE), "-o", str(object_file)])
            _run([compiler, "-shared", str(object_file), str(openmp), "-o", str(built)])
            built.replace(library)
    except subprocess.CalledProcessError as error:
        return str(error.stderr)[:300]
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    library.slotune_rms_norm.argtypes = [number, *[pointer] * 3, number, number, real]
    library.slotune_rms_norm.restype = None
    library.slotune_rope_and_store.argtypes = [
        number, *[pointer] * 7, real, pointer, *[number] * 5,
    ]  # fmt: skip
    library.slotune_rope_and_store.restype = None
    library.slotune_paged_attention.argtypes = [
        number, *[pointer] * 3, number, pointer, pointer, number, pointer, *[number] * 4, real,
    ]  # fmt: skip
    library.slotune_paged_attention.restype = number
    return library
