"""What the diagnosis costs: an evaluation over a Prometheus, and the embedded scraper's CPU.

    python benchmarks/diagnosis_cost.py [--repetitions 60]

Another process serves a recorded vLLM's page of 515 series, whose counters and histograms grow. The
embedded scraper reads it over HTTP as often as it does in five minutes at 5 s: CPU of this process
to fetch, parse and keep a page. Meanwhile a Prometheus of its own (Debian: prometheus) scrapes it
every 5 s; once that holds the window of 60 s, the tree is evaluated over it: wall clock from the
first request to the diagnosis, and the CPU of it that is this process's. Takes two minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from storage.sources import open_source
from storage.sources.scrape import ScrapeSource
from tests.storage.sources.real_prometheus import prometheus
from tests.storage.sources.serving import serving
from tuner.diagnosis import collect, diagnose
from tuner.slo import parse_slos

PAGE = Path(__file__).parents[1] / "fixtures" / "vllm-0.32-cpu-kv-starved.txt"
SCRAPE_S, WINDOW_S = 5.0, 60.0
SETTLE_S = WINDOW_S + 2 * SCRAPE_S
SLOS = parse_slos(["ttft_p95<500ms", "itl_p99<50ms"])
TREE_LIMIT_MS, SCRAPER_LIMIT = 200.0, 0.01
EXIT_OVER, EXIT_USAGE = 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=60, help="of each (default 60)")
    repetitions: int = parser.parse_args().repetitions
    if shutil.which("prometheus") is None:
        print("no prometheus is installed: apt-get install prometheus", file=sys.stderr)
        return EXIT_USAGE
    if repetitions < 2:
        print("--repetitions must be at least 2", file=sys.stderr)
        return EXIT_USAGE
    with tempfile.TemporaryDirectory() as folder, served() as url:
        targets = f"static_configs: [{{targets: ['{url.split('//')[1]}']}}]"
        job = f"{{job_name: engine, scrape_interval: 5s, {targets}}}"
        with prometheus(Path(folder), [job]) as asked:
            began_s = time.monotonic()
            scrapes_ms = scraped(url, repetitions)
            time.sleep(max(0.0, SETTLE_S - (time.monotonic() - began_s)))
            trees_ms, own_ms = evaluated(asked, repetitions)
    share = statistics.median(scrapes_ms) / 1000 / SCRAPE_S
    print(f"scraper, CPU a scrape with its HTTP fetch: {summary(scrapes_ms)}")
    print(f"every {SCRAPE_S:g} s that is {share:.2%} of a core (limit {SCRAPER_LIMIT:.0%})")
    print(f"tree over Prometheus, {SCRAPE_S:g} s scrapes, {WINDOW_S:g} s window:")
    print(f"  wall clock {summary(trees_ms)} (limit {TREE_LIMIT_MS:g} ms)")
    print(f"  CPU of this process {summary(own_ms)}")
    within = share < SCRAPER_LIMIT and statistics.median(trees_ms) < TREE_LIMIT_MS
    return 0 if within else EXIT_OVER


def summary(took_ms: Sequence[float]) -> str:
    middle = statistics.median(took_ms)
    low, high = min(took_ms), max(took_ms)
    return f"median {middle:.3g} ms, {low:.3g} to {high:.3g}, n={len(took_ms)}"


def scraped(url: str, repetitions: int) -> list[float]:
    """CPU milliseconds of each scrape. The source's own thread reads once and then waits."""
    source = ScrapeSource(url, scrape_interval_s=3600.0)
    took_ms = []
    try:
        assert source.status().up, source.status().reason
        for _ in range(repetitions):
            began_s = time.process_time()
            source._scrape()
            took_ms.append((time.process_time() - began_s) * 1000)
            time.sleep(0.1)
        assert source.status().up, source.status().reason
    finally:
        source.close()
    return took_ms


def evaluated(url: str, repetitions: int) -> tuple[list[float], list[float]]:
    """(wall milliseconds, this process's CPU milliseconds) of each evaluation."""
    source = open_source(prometheus=url, scrape_interval_s=SCRAPE_S, labels={"job": "engine"})
    walls_ms, own_ms = [], []
    try:
        for _ in range(repetitions):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            found = diagnose(collect(source, window_s=WINDOW_S), SLOS)
            walls_ms.append((time.perf_counter() - wall_s) * 1000)
            own_ms.append((time.process_time() - cpu_s) * 1000)
            assert (found.traffic, found.node("0").firing) == ("traffic", False), found.headline
            time.sleep(0.1)
    finally:
        source.close()
    return walls_ms, own_ms


@contextmanager
def served() -> Iterator[str]:
    """URL of the growing page, of a process that ends with the block."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    try:
        yield mine.recv()
    finally:
        mine.send("end")
        process.join(10)


def serve(told: Connection) -> None:
    began_s = time.monotonic()
    text = re.sub(r"(?m)^(process_start_time_seconds) .*", r"\1 1", PAGE.read_text())
    with serving(lambda: grown(text, time.monotonic() - began_s)) as server:
        told.send(server.url)
        told.recv()


def grown(text: str, for_s: float) -> str:
    """The page after so many seconds under load: counters and histograms are twice as large after a
    minute, gauges as they were."""
    gauges = set(re.findall(r"^# TYPE (\S+) gauge$", text, re.M))

    def line(found: str) -> str:
        name = found.partition("{")[0].split(" ")[0]
        if found.startswith("#") or not found or name in gauges:
            return found
        labels, _, value = found.rpartition(" ")
        return f"{labels} {float(value) * (1 + for_s / 60):.9g}"

    return "\n".join(line(found) for found in text.splitlines()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
