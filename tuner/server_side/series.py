"""The server's state during a run: what ran, what waited, how full the KV cache was.

Times are seconds on the records' clock. A value the server did not export then is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.sources.base import Agg

GAUGES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
"""Field → the gauge's names, newest first."""

FOLDED: Mapping[str, Agg] = {"running": "sum", "waiting": "sum", "kv_usage": "max"}
"""How the engines' gauges become one figure."""

COUNTERS: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
}

MOST_POINTS = 600

Column = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """at_s: when. running, waiting: requests; kv_usage: share of the cache in use (0 … 1).

    The rest are counts since the run began: tokens processed and generated, preemptions.
    """

    at_s: tuple[float, ...]
    running: Column
    waiting: Column
    kv_usage: Column
    prompt_tokens: Column
    generation_tokens: Column
    preemptions: Column

    def as_dict(self) -> dict[str, Any]:
        return {
            name: [None if value is None else round(value, 6) for value in column]
            for name, column in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Sequence[float | None]] | None) -> Series | None:
        if not stored or not stored.get("at_s"):
            return None
        at_s = tuple(float(at or 0.0) for at in stored["at_s"])
        nothing: Column = (None,) * len(at_s)
        names = [*GAUGES, *COUNTERS]
        return cls(at_s, *(tuple(stored.get(name) or nothing) for name in names))


def thinned(points: list[Any]) -> list[Any]:
    """Every second point, the first kept: the run turned out longer than was planned for."""
    return points[::2]
