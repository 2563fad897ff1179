"""The process environment that torch needs, set before torch is imported.

OpenMP threads that spin beside a busy HTTP server collapse the step time, so they spin briefly;
freed memory is kept, because page faults on fresh buffers cost more than the work on them.
"""

from __future__ import annotations

import ctypes
import os
import sys

SPIN_COUNT = 20_000
"""About 20 µs: longer than the gap between two operators, shorter than a neighbour's patience."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MALLOC_MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024


def prepare(num_threads: int | None = None) -> None:
    """Set thread and allocator behaviour; has no effect on what the user has set himself."""
    if "torch" in sys.modules:
        return
    if num_threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MALLOC_MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):  # not glibc: its defaults stay
        return
