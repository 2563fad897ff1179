"""What keeping a target's metrics costs: CPU a scrape and a point, bytes a point.

    python benchmarks/history_cost.py [--hours 2]

A vLLM's page of 515 series, whose figures grow, is scraped every 5 s in virtual time into a SQLite
file of its own; a point a minute is written. CPU is this process's, means with 95 % intervals.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sqlalchemy import func, select

sys.path.insert(0, str(Path(__file__).parents[1]))

from storage import open_database
from storage.history import History
from storage.history_points import FINE_S
from storage.schema import MetricPointRow
from tests.storage.sources.virtual import START_S, VirtualScrape
from tuner.stats.rates import mean_estimate

PAGE = Path(__file__).parents[1] / "fixtures" / "vllm-0.32-cpu-kv-starved.txt"
SCRAPE_S = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=2.0, help="virtual time (default 2)")
    hours: float = parser.parse_args().hours
    with (
        tempfile.TemporaryDirectory() as folder,
        open_database(Path(folder) / "slotune.db") as database,
    ):
        history = History(database, "http://virtual/metrics")
        scrapes_ms, points_ms = watched(VirtualScrape(lambda: history), hours * 3600)
        series = len(history.read(FINE_S, 0.0)[-1].layout.keys)
        with database._read() as session:
            query = select(func.avg(func.length(MetricPointRow.blob)), func.count())
            point_bytes, points = session.execute(query).one()
    scrape, point = (mean_estimate(np.array(ms), "ms") for ms in (scrapes_ms, points_ms))
    print(f"a target of {series} kept series, scraped every {SCRAPE_S} s for {hours:g} h")
    for name, found in (("scrape", scrape), ("minute's point", point)):
        interval = f"[{found.low:.2f}, {found.high:.2f}]"
        print(f"CPU a {name}: {found.value:.2f} ms {interval} n={found.n}")
    share = (60 / SCRAPE_S * scrape.value + point.value) / 60_000
    print(f"together: {share:.3%} of a core")
    print(f"a point: {point_bytes / 1000:.2f} kB compressed, the mean of n={points}")
    return 0


def watched(scraper: VirtualScrape, for_s: float) -> tuple[list[float], list[float]]:
    """CPU milliseconds of every scrape and of every point."""
    lines = [line.rpartition(" ") for line in PAGE.read_text().splitlines() if line]
    scrapes_ms, points_ms = [], []
    for at_s in np.arange(SCRAPE_S, for_s + 1, SCRAPE_S):
        page = "".join(
            f"{name} {value if name.startswith('#') else _grown(float(value), at_s, number)}\n"
            for number, (name, _, value) in enumerate(lines)
        )
        scraper.now_s = START_S + float(at_s)
        scrapes_ms.append(cpu_ms(lambda page=page: scraper.scrape(page)))  # type: ignore[misc]
        if at_s % FINE_S == 0:
            points_ms.append(cpu_ms(scraper.write))
    return scrapes_ms, points_ms


def _grown(value: float, at_s: float, number: int) -> str:
    """Every series at its own pace."""
    return f"{value * (1 + at_s * (number % 97 + 1) / 5000):.9g}"


def cpu_ms(work: Callable[[], None]) -> float:
    began_s = time.process_time()
    work()
    return (time.process_time() - began_s) * 1000


if __name__ == "__main__":
    sys.exit(main())
