"""How often intervals of nominal 95 % hold the true value, on series whose truth is known.

    python benchmarks/coverage.py [--runs 1000] [--jobs 2] [--only M/M/1] [--json]

Prints the tables of docs/measuring.md. `false`: a p95 that is in truth 5 % over its bound is called
met (nominal: at most 5 %); `half`: one of half its bound is. Seeded and without a clock: another
machine prints the same.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from tests.tuner.stats.load import Floats, ar1, lock_step, sojourns
from tuner.stats import Estimate, mean_estimate, quantile_estimate, share_estimate

SIGMA = 0.5
"""Of the logarithms of lognormal series."""

FEWEST = {0.99: 300}
"""Requests below which a quantile has no two-sided interval of independent samples."""

RARE = 0.1
"""The share that is estimated: of samples above their true 90th percentile."""


@dataclass(frozen=True)
class Series:
    """n values in order of scheduling, as often as asked, and their true quantiles and mean."""

    name: str
    sizes: tuple[int, ...]
    made: Callable[[np.random.Generator, int, int], Floats]
    quantile: Callable[[float], float]
    mean: float


def lognormal(name: str, sizes: tuple[int, ...], phi: float) -> Series:
    def made(rng: np.random.Generator, rows: int, n: int) -> Floats:
        return np.exp(SIGMA * ar1(rng, rows, n, phi))

    return Series(name, sizes, made, partial(_quantile, SIGMA), math.exp(SIGMA**2 / 2))


def in_step(name: str, sizes: tuple[int, ...], drift: float) -> Series:
    """drift: how much later the last request is than the first; the truth is the window's own."""
    sigma = math.hypot(0.08, 0.02)

    def made(rng: np.random.Generator, rows: int, n: int) -> Floats:
        return np.exp(lock_step(rng, rows, n) + np.linspace(-drift / 2, drift / 2, n))

    steps = np.linspace(-drift / 2, drift / 2, 1001)

    def quantile(q: float) -> float:
        low, high = -2.0, 2.0
        for _ in range(60):
            middle = (low + high) / 2
            share = np.mean([NormalDist(step, sigma).cdf(middle) for step in steps])
            low, high = (middle, high) if share < q else (low, middle)
        return math.exp(low)

    mean = math.exp(sigma**2 / 2) * float(np.mean(np.exp(steps)))
    return Series(name, sizes, made, quantile, mean)


def queue(load: float, sizes: tuple[int, ...]) -> Series:
    """Times in an M/M/1 queue: exponential with mean load / (1 - load)."""
    mean = load / (1 - load)
    made = partial(_sojourns, load)
    return Series(f"M/M/1 queue, load {load}", sizes, made, lambda q: -math.log(1 - q) * mean, mean)


def _quantile(sigma: float, q: float) -> float:
    return math.exp(sigma * NormalDist().inv_cdf(q))


def _sojourns(load: float, rng: np.random.Generator, rows: int, n: int) -> Floats:
    return sojourns(rng, rows, n, load)


def all_series() -> list[Series]:
    return [
        lognormal("independent, lognormal, σ = 0.5", (100, 130, 300, 1000), 0.0),
        lognormal("AR(1), φ = 0.8", (100, 130, 300, 1000), 0.8),
        lognormal("AR(1), φ = 0.9", (130, 300, 1000), 0.9),
        in_step("eight clients in step, waves ±8 %", (130, 300, 1000), 0.0),
        in_step("in step, each later than the one before", (130, 300, 1000), 0.3),
        queue(0.5, (130, 300, 1000)),
        queue(0.7, (100, 300, 600, 1000, 2000)),
    ]


@dataclass(frozen=True)
class Row:
    """Shares of runs in percent; None where n is too small for the figure."""

    series: str
    n: int
    p50: float
    p95: float
    p99: float | None
    mean: float
    share: float
    false: float
    half: float
    p95_high: float
    """Median of the p95 interval's upper end, as a multiple of the estimate."""


def row(index: int, n: int, runs: int) -> Row:
    series = all_series()[index]
    rows = series.made(np.random.default_rng(11), runs, n)
    p95 = [quantile_estimate(x, 0.95, "s") for x in rows]
    decided = [quantile_estimate(x, 0.95, "s", confidence=0.9).high for x in rows]
    truth = series.quantile(0.95)
    edge = series.quantile(1 - RARE)

    def of_quantile(q: float) -> float:
        found = [quantile_estimate(x, q, "s") for x in rows]
        return covered(found, series.quantile(q))

    return Row(
        series.name,
        n,
        p50=of_quantile(0.5),
        p95=covered(p95, truth),
        p99=of_quantile(0.99) if n >= FEWEST[0.99] else None,
        mean=covered([mean_estimate(x, "s") for x in rows], series.mean),
        share=covered([share_estimate((x > edge).astype(float)) for x in rows], RARE),
        false=100 * float(np.mean([high <= truth / 1.05 for high in decided])),
        half=100 * float(np.mean([high <= 2 * truth for high in decided])),
        p95_high=float(np.median([one.high / one.value for one in p95])),
    )


def covered(estimates: Sequence[Estimate], truth: float) -> float:
    return 100 * float(np.mean([one.low <= truth <= one.high for one in estimates]))


def table(rows: Sequence[Row], runs: int) -> str:
    """Markdown."""
    error = 1.96 * math.sqrt(0.95 * 0.05 / runs) * 100
    lines = [
        f"percent of {runs} runs (±{error:.1f} points)",
        "",
        "| series | n | p50 | p95 | p99 | mean | share of 10 % | false | half | p95's upper end |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in rows:
        p99 = "–" if one.p99 is None else f"{one.p99:.1f}"
        lines.append(
            f"| {one.series} | {one.n:,} | {one.p50:.1f} | {one.p95:.1f} | {p99} | {one.mean:.1f} "
            f"| {one.share:.1f} | {one.false:.1f} | {one.half:.0f} | {one.p95_high:.2f} × |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000, help="of each series and length")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="series whose name holds this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.runs < 1 or options.jobs < 1:
        parser.error("--runs and --jobs: at least 1")
    cases = [
        (i, n) for i, one in enumerate(all_series()) if options.only in one.name for n in one.sizes
    ]
    if not cases:
        names = ", ".join(one.name for one in all_series())
        parser.error(f"--only {options.only}: in no series' name; there are: {names}")
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(partial(_row_of, options.runs), cases))
    told = json.dumps([asdict(one) for one in rows], indent=1) if options.json else ""
    print(told or table(rows, options.runs))


def _row_of(runs: int, case: tuple[int, int]) -> Row:
    return row(*case, runs)


if __name__ == "__main__":
    main()
