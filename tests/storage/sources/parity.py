"""A scripted exposition that the embedded scraper and a real Prometheus watch side by side.

Both scrape once a second, at different moments. Every counter stands still around its reset, so
that neither can miss growth that the other saw; what remains is sampling phase. On a busy machine
either may scrape late, and then they saw different servers: tests that compare figures wait for a
time in which both kept their pace (`steady`, conftest.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from storage.sources.base import MetricSource, Outcome, Reading, Wanted
from tests.storage.sources.serving import Serving

WINDOW_S = 8.0
SCRIPT_S = 13.0
VANISHES_S = 5.0
TOLERANCE = 0.04
LABELS = 'model_name="a \\"b\\" \\\\c",engine="0"'
BUCKETS = {"0.1": 0.2, "0.5": 0.6, "1.0": 0.9, "+Inf": 1.0}


def grown(age_s: float) -> float:
    """Seconds of growth: 0…5 s, then still, reset at 6.5 s, still until 8 s, then growing again."""
    if age_s < 6.5:
        return min(age_s, 5.0)
    return max(0.0, age_s - 8.0)


def histogram(name: str, count: float, mean: float, shares: dict[str, float]) -> str:
    lines = [f'{name}_bucket{{{LABELS},le="{le}"}} {count * s}' for le, s in shares.items()]
    lines += [f"{name}_sum{{{LABELS}}} {count * mean}", f"{name}_count{{{LABELS}}} {count}"]
    return "\n".join([f"# TYPE {name} histogram", *lines])


def exposition(age_s: float) -> str:
    parts = [
        "process_start_time_seconds 1700000000",
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="40"} 1',
        'vllm:kv_cache_usage_perc{engine="0"} 0.0\nvllm:kv_cache_usage_perc{engine="1"} 0.65',
        f"vllm:num_requests_running{{{LABELS}}} {10 + age_s / 100}",
        "vllm:empty NaN",
        "# TYPE vllm:tokens_total counter",
        f"vllm:tokens_total{{{LABELS}}} {1000 + 100 * grown(age_s)}",
        f'vllm:tokens_total{{model_name="z",engine="1"}} {50 * age_s}',
        f'vllm:done_total{{finished_reason="stop"}} {20 * age_s}',
        f'vllm:done_total{{finished_reason="abort"}} {3 * age_s}',
        histogram("vllm:latency_seconds", 500 + 40 * age_s, 0.3, BUCKETS),
        histogram("vllm:restarting_seconds", 40 * grown(age_s), 0.3, BUCKETS),
        histogram("vllm:slow_seconds", 10 * age_s, 9.0, {"0.1": 0.1, "1.0": 0.2, "+Inf": 1.0}),
        histogram("vllm:fast_seconds", 10 * age_s, 0.01, {"0.1": 0.99, "1.0": 1.0, "+Inf": 1.0}),
        histogram("vllm:idle_seconds", 70, 0.3, BUCKETS),
    ]
    if age_s < VANISHES_S:
        parts.append("vllm:fleeting 1")
    return "\n".join(parts) + "\n"


@dataclass
class Pair:
    scraped: MetricSource
    asked: MetricSource
    target: Serving


CLOCK, CLOCK_PER_S = 'vllm:done_total{finished_reason="stop"}', 20.0
"""A counter that says how old the page is."""

LATE_S = 0.05
"""1 % of the shortest window compared here: a quarter of TOLERANCE."""


def on_time(samples: list[tuple[float, float]], covered_s: float) -> bool:
    """Whether the last seconds were sampled each second, by pages as old as their samples say.

    A sample's time is when it was asked for, its value what held when it was answered; on a busy
    machine these differ, by other amounts for either source.
    """
    recent = [(at_s, value) for at_s, value in samples if at_s > samples[-1][0] - covered_s]
    gaps_s = [after - before for (before, _), (after, _) in pairwise(recent)]
    began_s = [at_s - value / CLOCK_PER_S for at_s, value in recent]
    return (
        len(recent) >= covered_s - 1
        and all(0.9 < gap_s < 1.1 for gap_s in gaps_s)
        and max(began_s) - min(began_s) < LATE_S
    )


def same(mine: Reading, theirs: Reading, tolerance: float = TOLERANCE) -> None:
    assert (mine.outcome, theirs.outcome) == (Outcome.VALUE, Outcome.VALUE), (mine, theirs)
    assert mine.value == pytest.approx(theirs.value, rel=tolerance)
    assert mine.bound == theirs.bound
    assert mine.window_s == theirs.window_s
    assert abs(mine.at_s - theirs.at_s) < 3.0


NAMES = (
    "vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:tokens_total", "vllm:fleeting",
    "vllm:done_total", "vllm:cache_config_info", "vllm:empty", "process_start_time_seconds",
    *(f"vllm:{name}_seconds_{end}" for name in ("latency", "slow", "fast", "idle", "restarting")
      for end in ("bucket", "sum", "count")),
)  # fmt: skip


def gathered(pair: Pair, window_s: float = 11.0) -> MetricSource:
    return pair.asked.at_once(Wanted(frozenset(NAMES), window_s))
