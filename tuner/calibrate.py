"""Sizes a load so that the SLOs bind on this machine: the baseline lands just beyond its limit.

A load far below the limit leaves nothing to win (every setting passes), one far above it leaves
nothing to save (none does). The level that is looked for, clients in a closed loop or requests
per second, has the baseline's tightest latency 10 to 50 % over its bound.

The default shape is a closed loop of prompts of one length and answers of one length. Its clients
fall in step: prompts that arrive together share one large step (2,048 tokens take about 0.6 s at
3,400 tokens/s) and get their first token only when all of them are done, then end together and
come back together. A smaller chunk_size breaks such a convoy up, at the price of more steps; a
lower max_num_seqs queues what would slow every step. So both knobs have honest leverage on TTFT.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tuner.errors import UserError
from tuner.measure import Measurement
from tuner.slo import SloSet, Verdict, judge
from tuner.slo.names import METRICS
from tuner.workload import Workload

DEFAULT_WORKLOAD = "prompt=256,output=32,concurrency=8"
AIM, BAND = math.log(1.25), (math.log(1.10), math.log(1.50))
MAX_CLIENTS = 128
LIMIT_S = 60.0
PROBE_S, PROBE_WARMUP_S = 5.0, 2.0

Probe = Callable[[Workload, float, float, int], Measurement]
"""(workload, window_s, warmup_s, seed) → measurement at the baseline's settings."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """levels: (clients or requests/s, worst latency over its bound as a ratio) as probed."""

    workload: Workload
    levels: tuple[tuple[float, float], ...]
    spent_s: float
    note: str = ""


def calibrate(
    probe: Probe,
    workload: Workload,
    slos: SloSet,
    *,
    seed: int = 0,
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
    on_level: Callable[[float, float], None] | None = None,
) -> Calibration:
    """Bisects the load level. Raises UserError when no SLO bounds a latency, or nothing answers."""
    if not slos.latency_bounds_s:
        raise UserError(
            '--calibrate needs an SLO that more load can break, e.g. --slo "ttft_p95<500ms"'
        )
    began_s, found = clock(), {}
    level: float | None = workload.arrivals.level
    while level is not None:
        took_s = (clock() - began_s) / len(found) if found else 0.0
        if found and clock() - began_s + took_s > limit_s:
            break
        made = probe(workload.at(level), PROBE_S, PROBE_WARMUP_S, seed + 10_000 + len(found))
        if made.counts.get("ok", 0) == 0 and made.counts.get("censored", 0) == 0:
            raise UserError(f"the load could not be sized: {made.invalid_reason or _why(made)}")
        found[level] = _worst_latency_margin(judge(slos, made))
        if on_level is not None:
            on_level(level, math.exp(found[level]))
        level = _next_level(found, whole=workload.arrivals.closed)
    chosen = _chosen(found)
    levels = tuple((at, math.exp(margin)) for at, margin in found.items())
    return Calibration(workload.at(chosen), levels, clock() - began_s, _note(found, chosen))


def _worst_latency_margin(verdict: Verdict) -> float:
    return max(
        clause.margin_log
        for clause in verdict.clauses
        if METRICS[clause.clause.metric].per_request and clause.clause.upper
    )


def _next_level(found: dict[float, float], *, whole: bool) -> float | None:
    """None when a level is in the band or nothing lies between the neighbours any more."""
    if any(BAND[0] <= margin <= BAND[1] for margin in found.values()):
        return None
    below = [level for level, margin in found.items() if margin < AIM]
    above = [level for level, margin in found.items() if margin >= AIM]
    if not above:
        level = max(below) * 2
        return level if level <= MAX_CLIENTS or not whole else None
    if not below:
        level = min(above) / 2
        if whole:
            level = float(math.floor(level))
            return level if level >= 1 else None
        return level if level > 1e-2 else None
    low, high = max(below), min(above)
    level = math.sqrt(low * high)
    if not whole:
        return level if high / low > 1.1 else None
    level = float(round(level))
    return level if low < level < high else None


def _chosen(found: dict[float, float]) -> float:
    """In the band if one is; else the lightest load that misses the SLOs; else the heaviest."""
    inside = [level for level, margin in found.items() if BAND[0] <= margin <= BAND[1]]
    missing = [level for level, margin in found.items() if margin > 0]
    if inside:
        return min(inside, key=lambda level: abs(found[level] - AIM))
    return min(missing) if missing else max(found)


def _note(found: dict[float, float], chosen: float) -> str:
    if all(margin <= 0 for margin in found.values()):
        return f"the SLOs hold even at {chosen:g}: they do not bind on this machine"
    if found[chosen] > BAND[1] and chosen == min(found):
        return f"the SLOs are missed even at {chosen:g}"
    return ""


def _why(made: Measurement) -> str:
    errors = [record.error for record in made.in_window if record.error]
    return errors[0] if errors else "no request was answered"
