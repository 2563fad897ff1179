"""What a reader of a run should know before trusting it, and what makes a run invalid.

Cautions are notes beside figures that stand. A run is invalid where its figures do not show the
server in a steady state: nothing was sent, the generator was the bottleneck, or more was offered
than served.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.load.stalls import LoopStalls
from tuner.slo.grammar import SloSet
from tuner.workload.sharing import repeated_share

if TYPE_CHECKING:
    from tuner.measure import Measurement
    from tuner.records import RequestRecord

LAG_SHARE_OF_BOUND = 0.1
"""A run whose p99 lag exceeds this share of the tightest latency bound is invalid."""

SINCE_SCHEDULED = ("ttft", "ttfat", "e2e")
"""Latencies that start at the scheduled send; the lag is no part of gaps between tokens."""

LAG_LIMIT_S = 0.1
"""Without SLOs on these: what the generator's own p99 lag may be."""

BUSY_LIMIT = 0.9
"""Share of its core that the generator's busiest event loop may use in a closed loop."""

LENGTH_TOLERANCE = 0.05
"""Mean lengths may be this share off what the workload asked for."""

HIT_RATE_TOLERANCE = 0.1
"""Prefix-cache hits may exceed the share of repeated tokens by this much."""


@dataclass(frozen=True, slots=True)
class GeneratorLoop:
    """What the generator's event loops were like inside a window: their delay in seconds, and how
    much of a core the busiest one used. Small enough to be kept with a run."""

    stall_p99_s: float
    stall_max_s: float
    busy_share: float

    @classmethod
    def within(cls, stalls: LoopStalls, window_s: tuple[float, float]) -> GeneratorLoop:
        inside = stalls.within(*window_s)
        return cls(inside.p99_s, inside.max_s, inside.busy_share)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> GeneratorLoop | None:
        """From a stored summary's "generator"; None where it was not watched."""
        names = ("stall_p99_s", "stall_max_s", "busy_share")
        if values is None or any(values.get(name) is None for name in names):
            return None
        return cls(*(float(values[name]) for name in names))


def notes(made: Measurement) -> list[str]:
    """One sentence each; empty when nothing is odd."""
    good = [record for record in made.in_window if record.ok]
    counted = [record for record in good if record.counted_by_server]
    found = []
    if len(counted) < len(good):
        found.append(
            f"{len(good) - len(counted)} of {len(good)} answers came without usage: "
            "their tokens are counted by chunks"
        )
    for what in ("prompt", "output"):
        got = _mean([getattr(record, f"{what}_tokens") for record in counted])
        wanted = _mean([getattr(record, f"wanted_{what}_tokens") for record in counted])
        if got and wanted and abs(got / wanted - 1) > LENGTH_TOLERANCE:
            found.append(
                f"{what}s came out at {got:.0f} tokens on average where the workload asks for "
                f"{wanted:.0f}"
            )
    return [*_unsteady(made), *_in_batches(made), *found, *_cut(made), *_warm_cache(made)]


def why_invalid(made: Measurement, slos: SloSet) -> str:
    """One sentence; "" for a run whose figures stand."""
    if made.counts["sent"] == 0:
        return _nothing_sent(made)
    fault = _generator_fault(made, slos)
    if fault:
        return fault
    if made.saturation is not None:
        return (
            f"no steady state: {made.saturation}. Latencies here depend on how long the load "
            "lasts; lower the rate"
        )
    return ""


def _nothing_sent(made: Measurement) -> str:
    """In a closed loop no client may have come free: no shorter warm-up changes that."""
    nothing = "no request was scheduled inside the measured window"
    count, start_s = made.counts["warmup"], made.window_s[0]
    if not count:
        return nothing
    late = [r for r in made.records if r.state == "censored" or r.end_s >= start_s]
    arrivals = made.workload.arrivals
    if not arrivals.closed or len(late) < arrivals.clients_at(*made.window_s):
        return f"{nothing}: all {count} fell into the warm-up; shorten it or measure longer"
    took_s = max(_heard_s(record, start_s) - record.scheduled_s for record in late)
    return (
        f"{nothing}: {len(late)} of {count} sent before it took until after its start, up to "
        f"{took_s:.3g} s each, and their clients were not free; measure for several times as long "
        "as a request takes, or ask for shorter answers"
    )


def _heard_s(record: RequestRecord, least_s: float) -> float:
    """When a request was last heard of, not before least_s."""
    times = (record.end_s, *record.chunk_times_s[-1:], least_s)
    return max(time_s for time_s in times if not math.isnan(time_s))


def _generator_fault(made: Measurement, slos: SloSet) -> str:
    """An open loop shows it by sending late; a closed loop, which never sends late, by an event
    loop that is full or stalls."""
    bounds = [slos.latency_bounds_s[m] for m in SINCE_SCHEDULED if m in slos.latency_bounds_s]
    limit_s = LAG_SHARE_OF_BOUND * min(bounds) if bounds else LAG_LIMIT_S
    advice = "lower the load or give it a free core"
    if made.lag_p99_s > limit_s:
        return (
            f"the load generator was late itself: p99 lag {made.lag_p99_s * 1e3:.1f} ms exceeds "
            f"{limit_s * 1e3:.1f} ms; {advice}"
        )
    loop = made.generator
    if loop is None or not made.workload.arrivals.closed:
        return ""
    if loop.busy_share >= BUSY_LIMIT:
        return (
            f"the load generator was the bottleneck: its event loop was busy "
            f"{loop.busy_share:.0%} of the window; {advice}"
        )
    if loop.stall_p99_s > limit_s:
        return (
            f"the load generator stalled: p99 {loop.stall_p99_s * 1e3:.1f} ms exceeds "
            f"{limit_s * 1e3:.1f} ms; {advice}"
        )
    return ""


def _unsteady(made: Measurement) -> list[str]:
    """Said, never trimmed away."""
    chosen = made.chosen
    if chosen is None or chosen.steady.reached is not False:
        return []
    return [f"no steady state was reached: {chosen.steady.why}; run longer or warm up longer"]


def _in_batches(made: Measurement) -> list[str]:
    """Their order is unknown, so the series does not show how they depend on each other."""
    if made.workload.arrivals.kind != "at_once" or len(made.in_window) < 2:
        return []
    return [
        "all requests were sent at once and served in a few batches, whose requests are nearly one "
        "sample: the latencies' intervals are too narrow; only repeated runs show how they vary"
    ]


def _cut(made: Measurement) -> list[str]:
    """Requests that the server's context could not hold as the workload asks for them."""
    longest = made.endpoint.max_model_len
    if longest is None:
        return []
    cut = sum(
        made.workload.lengths(made.seed, record.session, record.turn)[:2]
        != (record.wanted_prompt_tokens, record.wanted_output_tokens)
        for record in made.in_window
        if record.wanted_prompt_tokens
    )
    if not cut:
        return []
    return [
        f"{cut} of {len(made.in_window)} requests were cut to the server's context of {longest} "
        "tokens"
    ]


def _warm_cache(made: Measurement) -> list[str]:
    """Hits that neither what the workload repeats nor the chat template explains come from an
    earlier run's tokens. A file's own prompts may share anything: of them nothing is said."""
    rate = made.server.prefix_hit_rate if made.server is not None else None
    if rate is None or rate <= HIT_RATE_TOLERANCE:
        return []
    sent = [(record.session, record.turn) for record in made.records]
    repeated = repeated_share(made.workload, made.seed, sent)
    if repeated is None:
        return []
    mean_tokens = max(1.0, _mean([record.wanted_prompt_tokens for record in made.records]))
    explained = min(1.0, repeated + made.endpoint.template_tokens / mean_tokens)
    if rate <= explained + HIT_RATE_TOLERANCE:
        return []
    return [
        f"the server's prefix cache served {rate:.0%} of prompt tokens though the workload repeats "
        f"{explained:.0%}: a warm cache or other traffic flatters these figures"
    ]


def _mean(values: list[int]) -> float:
    return float(np.mean(values)) if values else 0.0
