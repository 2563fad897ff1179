"""What the server counted during a run, under vLLM's names: increases from before it to after it.

Invariant: a figure the server does not export, lost by a restart or is no finite number is None and
never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from storage.sources import Exposition
from storage.sources.answers import bucket_bound
from storage.sources.windows import finite
from tuner.server_side.series import Series

_QUEUE = "vllm:request_queue_time_seconds"
_TTFT = "vllm:time_to_first_token_seconds"
_E2E = "vllm:e2e_request_latency_seconds"

COUNTED = (
    "vllm:(gpu_)?prefix_cache_(queries|hits)_total",
    "vllm:request_success_total",
    "vllm:(prompt|generation)_tokens_total",
    "vllm:num_preemptions_total",
    f"{_QUEUE}_(sum|count|bucket)",
    f"{_TTFT}_(sum|count)",
    f"{_E2E}_(sum|count)",
)
"""What ServerSide is made of, as patterns of names."""

Increase = Callable[..., float | None]
"""(names of a counter, newest first) → what it grew by during the run; None when not known."""

Bounds = tuple[tuple[float, float], ...]
"""(upper bucket bound in seconds, cumulative count) of a histogram."""


@dataclass(frozen=True, slots=True)
class ServerSide:
    """Increases over the whole run, warm-up included; None where the server does not say.

    finished: requests that ended by themselves, aborted ones those the client left. queue_bounds_s:
    waits of finished requests. first_tokens: observations behind ttft_mean_s. source: where the
    counters were read, and how exactly. series: the server's state during the run. restarted: it
    was, so that no increase is known.
    """

    prompt_tokens: float | None
    generation_tokens: float | None
    preemptions: float | None
    prefix_hit_rate: float | None
    finished: float | None
    queue_mean_s: float | None
    queue_bounds_s: Bounds = ()
    aborted: float | None = None
    first_tokens: float | None = None
    ttft_mean_s: float | None = None
    e2e_mean_s: float | None = None
    source: str = ""
    series: Series | None = None
    restarted: bool = False

    @classmethod
    def of_restart(cls) -> ServerSide:
        """A server whose counters began anew during the run: what they held is lost."""
        return cls(None, None, None, None, None, None, restarted=True)

    @classmethod
    def between(cls, before: Exposition | None, after: Exposition | None) -> ServerSide | None:
        """The difference of two scrapes; None without both."""
        if before is None or after is None:
            return None

        def increase(*names: str, **labels: str) -> float | None:
            for name in names:
                end, start = after.total(name, labels), before.total(name, labels)
                if end is not None and start is not None:
                    grown = end - start
                    return grown if finite(grown) is not None and grown >= 0 else None
            return None

        queries = increase("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
        hits = increase("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
        ended = increase("vllm:request_success_total")
        aborted = increase("vllm:request_success_total", finished_reason="abort")
        return cls(
            prompt_tokens=increase("vllm:prompt_tokens_total"),
            generation_tokens=increase("vllm:generation_tokens_total"),
            preemptions=increase("vllm:num_preemptions_total"),
            prefix_hit_rate=hits / queries if queries and hits is not None else None,
            finished=ended - (aborted or 0.0) if ended is not None else None,
            queue_mean_s=_mean(increase, _QUEUE),
            queue_bounds_s=_buckets(before, after),
            aborted=aborted,
            first_tokens=increase(f"{_TTFT}_count"),
            ttft_mean_s=_mean(increase, _TTFT),
            e2e_mean_s=_mean(increase, _E2E),
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
        values["series"] = self.series.as_dict() if self.series is not None else None
        return values

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any] | None) -> ServerSide | None:
        """The inverse of as_dict; what another version did not store is not known."""
        if not stored:
            return None
        values: dict[str, Any] = {f.name: stored.get(f.name) for f in fields(cls)}
        values["queue_bounds_s"] = tuple(
            (float(bound), float(count)) for bound, count in stored.get("queue_bounds_s") or ()
        )
        values["source"] = stored.get("source") or ""
        values["restarted"] = bool(stored.get("restarted"))
        values["series"] = Series.from_dict(stored.get("series"))
        return cls(**values)


def together(runs: Sequence[ServerSide | None]) -> ServerSide | None:
    """Increases of several runs added up, waits over the requests of all; None when a run has none.

    A figure that one run lacks is not known of all. Left out are the prefix hit rate (shares do not
    add up without the numbers looked up), the latencies' means and the series.
    """
    known = [run for run in runs if run is not None]
    if len(known) < len(runs) or not known:
        return None
    if len(known) == 1:
        return known[0]
    waits = sum(run.queue_count for run in known)
    waited_s = _sum(
        None if run.queue_mean_s is None else run.queue_mean_s * run.queue_count for run in known
    )
    return ServerSide(
        prompt_tokens=_sum(run.prompt_tokens for run in known),
        generation_tokens=_sum(run.generation_tokens for run in known),
        preemptions=_sum(run.preemptions for run in known),
        prefix_hit_rate=None,
        finished=_sum(run.finished for run in known),
        queue_mean_s=waited_s / waits if waited_s is not None and waits > 0 else None,
        queue_bounds_s=_added(known),
        aborted=_sum(run.aborted for run in known),
        first_tokens=_sum(run.first_tokens for run in known),
        source=known[0].source,
    )


def _mean(increase: Increase, histogram: str) -> float | None:
    total, count = increase(f"{histogram}_sum"), increase(f"{histogram}_count")
    return total / count if count and total is not None else None


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _added(runs: Sequence[ServerSide]) -> Bounds:
    """Cumulative counts of all runs; none where the runs have other buckets."""
    bounds = [bound for bound, _ in runs[0].queue_bounds_s]
    if any([bound for bound, _ in run.queue_bounds_s] != bounds for run in runs):
        return ()
    counts = zip(*([count for _, count in run.queue_bounds_s] for run in runs), strict=True)
    return tuple((bound, sum(each)) for bound, each in zip(bounds, counts, strict=True))


def _buckets(before: Exposition, after: Exposition) -> Bounds:
    """The waits between two scrapes; none after a restart, where a bucket has shrunk, nor of a
    histogram with a bucket that cannot be read."""
    start, end = _by_bound(before), _by_bound(after)
    grown = tuple((bound, count - start.get(bound, 0.0)) for bound, count in sorted(end.items()))
    return grown if all(finite(count) is not None and count >= 0 for _, count in grown) else ()


def _by_bound(scrape: Exposition) -> dict[float, float]:
    counts: dict[float, float] = {}
    for series, value in scrape.find(f"{_QUEUE}_bucket"):
        bound = bucket_bound(series.labels.get("le", ""))
        if bound is None:
            return {}
        counts[bound] = counts.get(bound, 0.0) + value
    return counts
