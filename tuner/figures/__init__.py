"""Figures: from the records of a run, or of several, to estimates with intervals."""

from tuner.figures.figure import (
    LATENCIES,
    RATES,
    SHARES,
    SUMMARY_STATS,
    failure_reasons,
    figure,
    lag_p99_s,
    latencies,
    latency_estimate,
    meets,
    request_rate,
    share_hit,
    summary,
    throughput,
    token_events,
)
from tuner.figures.samples import Window, cut_off_s, gap_groups, in_window

__all__ = [
    "LATENCIES", "RATES", "SHARES", "SUMMARY_STATS", "Window", "cut_off_s", "failure_reasons",
    "figure", "gap_groups", "in_window", "lag_p99_s", "latencies", "latency_estimate", "meets",
    "request_rate", "share_hit", "summary", "throughput", "token_events",
]  # fmt: skip
