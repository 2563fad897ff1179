"""Synthetic signals: a healthy server, changed where a test plants a cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from storage.sources.base import Outcome, Reading, SourceStatus
from tuner.diagnosis import Signals

WINDOW_S = 60.0
NOW_S = 1_800_000_000.0

HEALTHY = {
    "running": 8.0, "running_mean": 8.0, "waiting": 0.0, "waiting_mean": 0.0, "waiting_rise": 0.0,
    "running_share": 1.0, "waiting_share": 0.0,
    "waiting_growing_s": 0.0, "kv_usage": 0.4, "kv_usage_mean": 0.4, "restart": 0.0,
    "preemptions": 0.0, "finished": 100.0, "rejections": 0.0, "generated": 6000.0,
    "prompted": 25_000.0, "prefix_queries": 25_000.0, "prefix_hits": 0.0,
    "busy_s": 40.0, "idle_s": 20.0, "hit_rate": 0.5, "hit_rate_before": 0.5,
    "flops": 1e12, "peak_flops": 1e13, "read_bytes": 1e9, "write_bytes": 1e8, "peak_bytes": 2e10,
    "power_throttle": 0.0, "thermal_throttle": 0.0,
    "step_tokens": 100.0, "step_tokens_p50": 8.0, "step_tokens_p90": 9.0,
    "step_tokens_p99": 11.0, "prompt_tokens": 256.0,
    "prompt_tokens_p50": 256.0, "prompt_tokens_p99": 300.0,
    "ttft": 0.2, "ttft_p50": 0.2, "ttft_p95": 0.3, "ttft_p99": 0.4,
    "itl": 0.02, "itl_p50": 0.02, "itl_p95": 0.025, "itl_p99": 0.03,
    "tpot": 0.02, "tpot_p50": 0.02, "tpot_p95": 0.025, "tpot_p99": 0.03,
    "answer_tokens": 60.0, "asked_tokens": 128.0,
    "e2e": 1.5, "queue": 0.01, "prefill": 0.1, "inference": 1.48,
}  # fmt: skip
BREAKDOWNS: dict[str, dict[str, float]] = {
    "finished_by": {"stop": 95.0, "length": 5.0, "abort": 0.0, "error": 0.0},
    "waiting_by": {"capacity": 0.0, "deferred": 0.0},
    "binding": {},
    "phase_s": {"schedule": 1.0, "forward": 38.0, "sample": 1.0},
}
CONFIG = {
    "max_num_seqs": "64", "chunk_size": "512", "enable_prefix_caching": "True", "device": "cuda",
    "max_num_seqs_high": "256", "chunk_size_high": "4096",
}  # fmt: skip


def reading(value: float | None, name: str = "", outcome: Outcome = Outcome.NO_DATA) -> Reading:
    """A value, or with None a reading of the given outcome."""
    if value is None:
        return Reading(outcome, query=f"vllm:{name}", reason=f"vllm:{name} is not exported")
    return Reading(Outcome.VALUE, value, f"vllm:{name}", WINDOW_S, 100, NOW_S)


def signals(
    *,
    config: Mapping[str, str] | None = None,
    breakdowns: Mapping[str, Mapping[str, float]] | None = None,
    age_s: float | None = 1.0,
    up: bool = True,
    models: tuple[str, ...] = ("smollm2",),
    **values: float | None,
) -> Signals:
    """The healthy server with `values` in place of its own; None takes a signal away."""
    readings = {name: reading(value, name) for name, value in (HEALTHY | values).items()}
    parts = BREAKDOWNS | {k: dict(v) for k, v in (breakdowns or {}).items()}
    return Signals(
        "http://test", "slotune", NOW_S, WINDOW_S, SourceStatus(up, age_s, NOW_S - 9999, 5.0),
        readings, {n: {k: reading(v, n) for k, v in p.items()} for n, p in parts.items()},
        CONFIG | (config or {}), models,
    )  # fmt: skip


def without(base: Signals, *names: str, outcome: Outcome = Outcome.NO_DATA) -> Signals:
    """base with these readings turned into ones without a value."""
    gone = {name: reading(None, name, outcome) for name in names}
    return replace(base, readings={**base.readings, **gone})


@dataclass(frozen=True)
class Clause:
    metric: str
    bound: float
    stat: str = "p95"
    op: str = "<"

    @property
    def quantile(self) -> float | None:
        return float(self.stat[1:]) / 100 if self.stat.startswith("p") else None

    def __str__(self) -> str:
        return f"{self.metric}_{self.stat}{self.op}{self.bound:g}"


@dataclass(frozen=True)
class Slos:
    clauses: tuple[Clause, ...]


SLOS = Slos((Clause("ttft", 0.5), Clause("tpot", 0.05)))

# Figures of a server that misses an SLO, by what it waits for.
SLOW_TTFT: dict[str, float | None] = {"ttft": 2.0, "ttft_p50": 1.8, "ttft_p95": 3.0}
QUEUE = SLOW_TTFT | {
    "queue": 1.6, "prefill": 0.3, "e2e": 3.9, "inference": 2.25, "waiting": 12.0,
    "waiting_mean": 12.0,
}  # fmt: skip
PREFILL = SLOW_TTFT | {"queue": 0.05, "prefill": 1.8, "e2e": 4.0, "inference": 3.9}
SLOW_TPOT: dict[str, float | None] = {"tpot": 0.09, "tpot_p95": 0.2, "itl_p50": 0.08,
                                      "itl_p99": 0.09}  # fmt: skip
STEPS = {"underloaded": 10.0, "kv_pressure": 0.0, "seq_cap": 0.0, "token_budget": 0.0,
         "deferred": 0.0, "other": 0.0}  # fmt: skip
