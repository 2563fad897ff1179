"""Whether a study and the metric history that is kept meanwhile can hold each other up.

`python benchmarks/history_beside.py` writes a study's measurements while another process writes
points of a history as fast as it can, once into the same SQLite file and once into the file of its
own that `dashboard serve` uses; then with that process suspended in the middle of a point, as a
closed laptop or a paused container does.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from storage import StorageError, open_database
from storage.history import History
from storage.history_points import Layout, Point
from storage.location import history_beside

SERIES = 445
"""Kept of slotune's own page."""

LAYOUT = Layout(tuple(f'vllm:series_total{{n="{n}"}}' for n in range(SERIES)))


def point(at_s: float) -> Point:
    return Point(at_s, LAYOUT, np.random.rand(SERIES), np.zeros(SERIES), np.zeros(SERIES))


def keep(path: str, *, suspend: bool) -> None:
    """The other process: points without a pause, or one in the middle of which it stops itself."""
    history = History(open_database(path), "http://engine/metrics")
    at_s = time.time()
    history.add(lambda since_s: point(at_s))
    print("ready", flush=True)
    while True:
        at_s += 60.0
        if suspend:
            history.add(lambda since_s: os.kill(os.getpid(), signal.SIGSTOP))
        history.add(lambda since_s, at_s=at_s: point(at_s))  # type: ignore[misc]


def store(path: str, writes: int) -> list[float]:
    """Seconds that each write of a study took: a measurement with the records of 300 requests."""
    records = {"ttft_s": np.random.rand(300), "e2e_s": np.random.rand(300)}
    took_s = []
    with open_database(path) as database:
        study = database.create_study(f"study {time.time_ns()}")
        for number in range(writes):
            began_s = time.monotonic()
            database.add_measurement(
                stage="search", config={"max_num_seqs": number}, started_at_s=time.time(),
                study_id=study.id, records=records,
            )  # fmt: skip
            took_s.append(time.monotonic() - began_s)
    return took_s


def beside(study: str, history: str, writes: int, *, suspend: bool) -> str:
    """What a study's writes took while the other process wrote, or why they failed."""
    open_database(study).close()
    words = [sys.executable, __file__, "--keep", history, *(["--suspend"] if suspend else [])]
    other = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    other.stdout.readline()
    time.sleep(1.0)
    began_s = time.monotonic()
    try:
        took_s = store(study, writes)
    except StorageError as fault:
        return f"failed after {time.monotonic() - began_s:.1f} s: {fault}"
    finally:
        other.kill()
        other.wait()
    cuts = statistics.quantiles(took_s, n=100)
    return (
        f"median {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms, "
        f"longest {max(took_s) * 1e3:.1f} ms (n={len(took_s)})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=2000)
    parser.add_argument("--keep", help=argparse.SUPPRESS)
    parser.add_argument("--suspend", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.keep:
        keep(args.keep, suspend=args.suspend)
    for suspend in (False, True):
        for apart in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                study = str(Path(folder) / "slotune.db")
                history = history_beside(study) if apart else study
                said = beside(study, history, args.writes, suspend=suspend)
            where = "a file of its own" if apart else "the same file"
            how = "suspended within a write" if suspend else "writing without a pause"
            print(f"history in {where}, its writer {how}: a study's write: {said}")


if __name__ == "__main__":
    main()
