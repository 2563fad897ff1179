"""What the server itself says of a run: its counters before and after, under vLLM's names."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from storage.errors import StorageError
from storage.sources import Exposition, scrape_once

_QUEUE = "vllm:request_queue_time_seconds"


def observe(base_url: str) -> Exposition | None:
    """The target's metrics now; None when it exports none."""
    try:
        return scrape_once(base_url)
    except StorageError:
        return None


@dataclass(frozen=True, slots=True)
class ServerSide:
    """Increases over the whole run, warm-up included; None where the server does not say.

    queue_bounds_s: (upper bucket bound in seconds, cumulative count) of finished requests' waits.
    """

    prompt_tokens: float | None
    generation_tokens: float | None
    preemptions: float | None
    prefix_hit_rate: float | None
    finished: float | None
    queue_mean_s: float | None
    queue_bounds_s: tuple[tuple[float, float], ...] = ()

    @classmethod
    def between(cls, before: Exposition | None, after: Exposition | None) -> ServerSide | None:
        """The difference of two scrapes; None without both or after a restart between them."""
        if before is None or after is None:
            return None

        def increase(*names: str) -> float | None:
            for name in names:
                end, start = after.total(name), before.total(name)
                if end is not None and start is not None:
                    return end - start if end >= start else None
            return None

        queries = increase("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
        hits = increase("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
        waited, count = increase(f"{_QUEUE}_sum"), increase(f"{_QUEUE}_count")
        return cls(
            prompt_tokens=increase("vllm:prompt_tokens_total"),
            generation_tokens=increase("vllm:generation_tokens_total"),
            preemptions=increase("vllm:num_preemptions_total"),
            prefix_hit_rate=hits / queries if queries and hits is not None else None,
            finished=increase("vllm:request_success_total"),
            queue_mean_s=waited / count if count and waited is not None else None,
            queue_bounds_s=_buckets(before, after),
        )

    @property
    def queue_count(self) -> int:
        """Requests whose wait the histogram holds."""
        return int(self.queue_bounds_s[-1][1]) if self.queue_bounds_s else 0

    def queue_quantile_s(self, q: float) -> tuple[float, float, int]:
        """(lower, upper bound of the q-quantile's bucket in seconds, samples): no interpolation."""
        lower = 0.0
        for bound, count in self.queue_bounds_s:
            if count > 0 and count >= q * self.queue_count:
                return lower, bound, self.queue_count
            lower = bound
        return math.nan, math.nan, 0

    def queue_counts(self, bound_s: float) -> tuple[int, int]:
        """How many waits are within bound_s: (for certain, at most)."""
        certain = [count for bound, count in self.queue_bounds_s if bound <= bound_s]
        possible = [count for bound, count in self.queue_bounds_s if bound >= bound_s]
        return int(max(certain, default=0)), int(min(possible, default=self.queue_count))

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["queue_bounds_s"] = [
            [bound if math.isfinite(bound) else "inf", count]
            for bound, count in self.queue_bounds_s
        ]
        return values


def _buckets(before: Exposition, after: Exposition) -> tuple[tuple[float, float], ...]:
    def by_bound(scrape: Exposition) -> dict[float, float]:
        counts: dict[float, float] = {}
        for series, value in scrape.find(f"{_QUEUE}_bucket"):
            bound = float(series.labels["le"])
            counts[bound] = counts.get(bound, 0.0) + value
        return counts

    start = by_bound(before)
    return tuple((b, count - start.get(b, 0.0)) for b, count in sorted(by_bound(after).items()))
