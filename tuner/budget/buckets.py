"""At which bucket boundary a latency clause is counted.

Invariant: a share is read off a boundary that the histogram has, never between two. Where the bound
lies between boundaries the one below it counts (no slow request is called good); below the lowest
one the lowest counts, and the rule says so.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.metrics.buckets import TTFT_BUCKETS_S
from storage.sources.answers import bucket_bound
from storage.sources.base import MetricSource
from storage.sources.exposition import Exposition

_VLLM_LATENCY_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_VLLM_ITL_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_SGLANG_TTFT_S = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0,
    400.0,
)  # fmt: skip
_SGLANG_ITL_S = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
    0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
)  # fmt: skip

DEFAULT_BUCKETS_S: dict[str, tuple[float, ...]] = {
    "vllm:time_to_first_token_seconds": TTFT_BUCKETS_S,
    "vllm:inter_token_latency_seconds": _VLLM_ITL_S,
    "vllm:request_time_per_output_token_seconds": _VLLM_ITL_S,
    "vllm:e2e_request_latency_seconds": _VLLM_LATENCY_S,
    "vllm:request_queue_time_seconds": _VLLM_LATENCY_S,
    "sglang:time_to_first_token_seconds": _SGLANG_TTFT_S,
    "sglang:inter_token_latency_seconds": _SGLANG_ITL_S,
    "sglang:request_time_per_output_token_seconds": _SGLANG_ITL_S,
    "sglang:e2e_request_latency_seconds": (*_SGLANG_TTFT_S, 600.0, 1200.0, 1800.0, 2400.0),
}
"""Seconds, where nothing was scraped. vLLM's, which slotune's engine has too, beside finer ones;
SGLang's without its --bucket-… flags (its queue's have no table: they are read off a server)."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """le: the boundary counted at (seconds); bound: the clause's; next_s: the one above, if any."""

    le: float
    bound: float
    next_s: float | None = None

    @property
    def exact(self) -> bool:
        return math.isclose(self.le, self.bound, rel_tol=1e-9)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Of the label `le`, however the exporter writes the number."""
        text = f"{self.le:.12g}"
        return (text, f"{text}.0") if float(self.le).is_integer() else (text,)

    @property
    def label(self) -> str:
        """As Prometheus' Python client writes it."""
        return repr(float(self.le))

    @property
    def told(self) -> str:
        """What a person must know of it."""
        if self.exact:
            return f"counted at the bucket boundary {self.le:g} s"
        if self.le < self.bound:
            upper = f"{self.next_s:g} s" if self.next_s is not None else "+Inf"
            return (
                f"counted at the bucket boundary {self.le:g} s: the next one is {upper}, and what "
                f"lies between {self.le:g} s and the bound of {self.bound:g} s counts as bad"
            )
        return (
            f"counted at the lowest bucket boundary, {self.le:g} s: there is none at or below the "
            f"bound of {self.bound:g} s, and what lies between them counts as good"
        )


def boundary_of(bound: float, boundaries: Sequence[float]) -> Boundary | None:
    """The boundary that counts for a bound; None when the histogram has none."""
    known = sorted(b for b in boundaries if math.isfinite(b))
    if not known:
        return None
    index = bisect_right(known, bound * (1 + 1e-9))
    if index == 0:
        return Boundary(known[0], bound)
    return Boundary(known[index - 1], bound, known[index] if index < len(known) else None)


@dataclass(frozen=True, slots=True)
class Exports:
    """What a server exports now. les: the texts of `le` that a histogram has, by its name."""

    names: frozenset[str]
    les: Callable[[str], Sequence[str]]

    def resolve(self, names: Sequence[str]) -> str:
        """The first that is exported (a histogram by its base name), or else the first."""
        there = (n for n in names if n in self.names or f"{n}_bucket" in self.names)
        return next(there, names[0])


def of_exposition(exposition: Exposition) -> Exports:
    def les(histogram: str) -> list[str]:
        found = exposition.find(f"{histogram}_bucket")
        return [series.labels.get("le", "") for series, _ in found]

    return Exports(exposition.names(), les)


def of_source(source: MetricSource) -> Exports:
    return Exports(source.names(), lambda name: list(source.breakdown(f"{name}_bucket", "le")))


def boundaries_of(histogram: str, exported: Exports | None) -> tuple[float, ...]:
    """Seconds, ascending: those exported now, or the engine's own by default; () for none."""
    if exported is None:
        return DEFAULT_BUCKETS_S.get(histogram, ())
    found = {bucket_bound(le) for le in exported.les(histogram)}
    return tuple(sorted(b for b in found if b is not None and math.isfinite(b)))
