"""A metric source whose answers the test sets: states that no live engine shows at will."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.sources.base import Outcome, Reading, SourceStatus, Wanted

BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0)
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": 0.21,
    "vllm:request_time_per_output_token_seconds": 0.019,
    "vllm:inter_token_latency_seconds": 0.018,
    "vllm:e2e_request_latency_seconds": 1.4,
    "vllm:request_queue_time_seconds": 0.09,
    "vllm:request_prefill_time_seconds": 0.11,
}
GAUGES = {
    "vllm:num_requests_running": 12.0,
    "vllm:num_requests_waiting": 0.0,
    "vllm:kv_cache_usage_perc": 0.463,
}
RATES = {
    "vllm:prompt_tokens_total": 2311.4,
    "vllm:generation_tokens_total": 812.2,
    "vllm:request_success_total": 9.25,
    "vllm:num_preemptions_total": 0.0,
    "vllm:prefix_cache_queries_total": 2311.4,
    "vllm:prefix_cache_hits_total": 512.0,
    "vllm:admission_rejections_total": 0.0,
    "slotune:step_binding_limit_total": 30.0,
}
LIMITS = {"underloaded": 0.55, "seq_cap": 0.31, "token_budget": 0.1, "kv_pressure": 0.04}


@dataclass
class FakeSource:
    """outcome VALUE answers with the tables above; any other outcome is given for every question.

    without: names that are not exported.
    """

    outcome: Outcome = Outcome.VALUE
    without: frozenset[str] = frozenset()
    reason: str = ""
    scrape_interval_s: float = 1.0
    asked: list[str] = field(default_factory=list)

    def at_once(self, wanted: Wanted) -> FakeSource:
        return self

    def over(self, window_s: float) -> FakeSource:
        return self

    def status(self) -> SourceStatus:
        up = self.outcome is not Outcome.UNREACHABLE
        age_s = {Outcome.UNREACHABLE: None, Outcome.STALE: 42.0}.get(self.outcome, 0.4)
        return SourceStatus(up, age_s, time.time() - 4000, 1.0, self.reason)

    def names(self) -> frozenset[str]:
        if self.outcome is Outcome.UNREACHABLE:
            return frozenset()
        buckets = {f"{name}_bucket" for name in HISTOGRAMS}
        return frozenset(buckets | set(GAUGES) | set(RATES)) - self.without

    def info(self, name: str, labels: Mapping[str, str] | None = None) -> dict[str, str] | None:
        if name == "vllm:cache_config_info":
            return {"num_gpu_blocks": "4096", "block_size": "16"}
        if name == "slotune:scheduler_config_info":
            return {"max_num_seqs": "16", "chunk_size": "512"}
        return None

    def _answer(self, name: str, value: float | None, window_s: float, samples: int) -> Reading:
        self.asked.append(name)
        if value is None or self.outcome is Outcome.NO_DATA:
            return Reading(Outcome.NO_DATA, query=name, reason=f"{name} is not exported")
        if self.outcome is not Outcome.VALUE:
            return Reading(self.outcome, query=name, window_s=window_s, reason=self.reason)
        return Reading(Outcome.VALUE, value, name, window_s, samples, time.time())

    def gauge(self, name: str, labels: Any = None, agg: str = "max") -> Reading:
        if self.outcome is Outcome.NO_TRAFFIC:
            return Reading(Outcome.VALUE, 0.0, name, 0.0, 1, time.time())
        return self._answer(name, GAUGES.get(name), 0.0, 1)

    def rate(self, name: str, window_s: float, labels: Any = None) -> Reading:
        return self._answer(name, RATES.get(name), window_s, 60)

    def increase(self, name: str, window_s: float, labels: Any = None) -> Reading:
        value = RATES.get(name)
        return self._answer(name, None if value is None else value * window_s, window_s, 60)

    def mean(self, histogram: str, window_s: float, labels: Any = None) -> Reading:
        return self._answer(histogram, HISTOGRAMS.get(histogram), window_s, 555)

    def quantile(self, histogram: str, q: float, window_s: float, labels: Any = None) -> Reading:
        mean = HISTOGRAMS.get(histogram)
        value = None if mean is None else -mean * math.log(1 - q)
        return self._answer(histogram, value, window_s, 555)

    def breakdown(
        self, name: str, by: str, window_s: float | None = None, labels: Any = None
    ) -> dict[str, Reading]:
        if set(by.split(",")) <= {"instance", "engine", "dp_rank"}:
            return {"": self._answer(name, GAUGES.get(name), 0.0, 1)}
        if by == "model_name":
            return {"smollm2-135m": self._answer(name, 1.0, 0.0, 1)}
        if by == "reason":
            return {
                reason: self._answer(name, share * 30 * (window_s or 1), window_s or 0.0, 60)
                for reason, share in LIMITS.items()
            }
        mean = HISTOGRAMS.get(name.removesuffix("_bucket"), 1.0)
        counts = {f"{b:g}": 555 * (1 - math.exp(-b / mean)) for b in BOUNDS_S} | {"+Inf": 555.0}
        return {le: self._answer(name, count, window_s or 0.0, 60) for le, count in counts.items()}

    def range(self, kind: str, name: str, **options: Any) -> list[tuple[float, float | None]]:
        table = {"gauge": GAUGES, "rate": RATES}.get(kind, HISTOGRAMS)
        level = table.get(name, 1.0)
        start_s, end_s, step_s = (options[key] for key in ("start_s", "end_s", "step_s"))
        if self.outcome is not Outcome.VALUE:
            return []
        count = int((end_s - start_s) / step_s)
        factor = 1 + options.get("q", 0.5)
        return [
            (
                start_s + step_s * i,
                None if 40 < i < 48 else level * factor * (1 + 0.2 * math.sin(i / 6)),
            )
            for i in range(count)
        ]

    def close(self) -> None:
        pass
