"""Sizes a load so that the SLOs bind on this machine: the baseline lands just beyond its limit.

A load far below the limit leaves nothing to win (every setting passes), one far above it leaves
nothing to save (none does). What is looked for has the baseline's tightest latency 20 to 70 % over
its bound. The user's workload is sized by its clients or its rate, the default one by the length
of its prompts, so that slow and fast machines alike serve CLIENTS clients.

Why a closed loop of equal requests is the default: its clients fall in step. Prompts that arrive
together share one large step (2,048 tokens take about 0.6 s at 3,400 tokens/s) and get their first
token only when all of them are done, then end together and come back together. A smaller
chunk_size breaks such a convoy up, at the price of more steps; a lower max_num_seqs queues what
would slow every step. So both knobs have honest leverage on TTFT.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.errors import UserError
from tuner.measure import Measurement
from tuner.slo import SloSet, Verdict, judge
from tuner.slo.names import METRICS
from tuner.workload import Workload
from tuner.workload.lengths import Lengths

CLIENTS = 8
DEFAULT_WORKLOAD = f"prompt=256,output=16,concurrency={CLIENTS}"
AIM, BAND = math.log(1.4), (math.log(1.2), math.log(1.7))
LIMIT_S = 60.0
PROBE_S, PROBE_WARMUP_S = 5.0, 2.0
LONGEST_PROBE_S = 20.0
FEWEST_REQUESTS = 8

Probe = Callable[[Workload, float, float, int], Measurement]
"""(workload, window_s, warmup_s, seed) → measurement at the baseline's settings."""


@dataclass(frozen=True, slots=True)
class Dial:
    """What makes a load heavier: a level between low and high, whole numbers only or not."""

    unit: str
    start: float
    low: float
    high: float
    whole: bool
    at: Callable[[float], Workload]

    def bounded(self, level: float) -> float:
        level = min(max(level, self.low), self.high)
        return float(round(level)) if self.whole else level


def load_dial(workload: Workload) -> Dial:
    """Clients of a closed loop, or requests per second."""
    level = workload.arrivals.level
    if workload.arrivals.closed:
        return Dial("clients", level, 1, 256, True, workload.at)
    return Dial("requests/s", level, 0.05, 1_000, False, workload.at)


def prompt_dial(workload: Workload) -> Dial:
    """Prompt tokens of the default workload."""

    def at(level: float) -> Workload:
        return replace(workload, prompt=Lengths("fixed", level))

    return Dial("prompt tokens", workload.prompt.mean, 16, 1_536, True, at)


@dataclass(frozen=True, slots=True)
class Calibration:
    """levels: (level of the dial, worst latency over its bound as a ratio) as probed."""

    workload: Workload
    levels: tuple[tuple[float, float], ...]
    spent_s: float
    note: str = ""


def calibrate(
    probe: Probe,
    dial: Dial,
    slos: SloSet,
    *,
    seed: int = 0,
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
    on_level: Callable[[float, float], None] | None = None,
) -> Calibration:
    """Bisects the dial. Raises UserError when no SLO bounds a latency, or nothing answers."""
    if not slos.latency_bounds_s:
        raise UserError(
            '--calibrate needs an SLO that more load can break, e.g. --slo "ttft_p95<500ms"'
        )
    began_s = clock()
    found: dict[float, float] = {}
    level: float | None = dial.start
    while level is not None:
        took_s = (clock() - began_s) / len(found) if found else 0.0
        if found and clock() - began_s + took_s > limit_s:
            break
        made = _probe_level(probe, dial.at(level), seed + 10_000 + len(found))
        if made.counts.get("ok", 0) == 0 and made.counts.get("censored", 0) == 0:
            raise UserError(f"the load could not be sized: {made.invalid_reason or _why(made)}")
        found[level] = _worst_latency_margin(judge(slos, made))
        if on_level is not None:
            on_level(level, math.exp(found[level]))
        level = _next_level(found, dial)
    chosen = _chosen(found)
    levels = tuple((at, math.exp(margin)) for at, margin in found.items())
    note = _note(found, chosen, dial.unit)
    return Calibration(dial.at(chosen), levels, clock() - began_s, note)


def _probe_level(probe: Probe, workload: Workload, seed: int) -> Measurement:
    """A measurement long enough to hold some requests, also on a slow server."""
    window_s = PROBE_S
    while True:
        made = probe(workload, window_s, PROBE_WARMUP_S, seed)
        if made.counts.get("sent", 0) >= FEWEST_REQUESTS or window_s >= LONGEST_PROBE_S:
            return made
        window_s *= 2


def _worst_latency_margin(verdict: Verdict) -> float:
    return max(
        clause.margin_log
        for clause in verdict.clauses
        if METRICS[clause.clause.metric].per_request and clause.clause.upper
    )


def _next_level(found: dict[float, float], dial: Dial) -> float | None:
    """None when a level is in the band or no other lies between the neighbours any more.

    A latency grows about in proportion to the load, so the first steps go straight for the aim.
    """
    if any(BAND[0] <= margin <= BAND[1] for margin in found.values()):
        return None
    below = {level: margin for level, margin in found.items() if margin < AIM}
    above = {level: margin for level, margin in found.items() if margin >= AIM}
    if below and above:
        low, high = max(below), min(above)
        level = dial.bounded(math.sqrt(low * high))
        return level if low < level < high and high / low > 1.02 else None
    nearest = max(below) if below else min(above)
    factor = math.exp(AIM - found[nearest])
    level = dial.bounded(nearest * min(4.0, max(0.25, factor)))
    if level in found:  # one step at least, while there is room
        level = dial.bounded(nearest + 1 if below else nearest - 1) if dial.whole else level
    return level if level not in found else None


def _chosen(found: dict[float, float]) -> float:
    """In the band if one is; else the lightest load that misses the SLOs; else the heaviest."""
    inside = [level for level, margin in found.items() if BAND[0] <= margin <= BAND[1]]
    missing = [level for level, margin in found.items() if margin > 0]
    if inside:
        return min(inside, key=lambda level: abs(found[level] - AIM))
    return min(missing) if missing else max(found)


def _note(found: dict[float, float], chosen: float, unit: str) -> str:
    if all(margin <= 0 for margin in found.values()):
        return f"(the SLOs hold even at {chosen:g} {unit}: they do not bind on this machine)"
    if found[chosen] > BAND[1] and chosen == min(found):
        return f"(the SLOs are missed even at {chosen:g} {unit})"
    return ""


def _why(made: Measurement) -> str:
    errors = [record.error for record in made.in_window if record.error]
    return errors[0] if errors else "no request was answered"
