"""What is searched where the user names no knob: which knobs, and in which ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.knobs import KNOBS, LIVE_KNOBS, obeyed
from tuner.search.axis import Axis
from tuner.targets.base import UNSET, KnobRange
from tuner.workload import Workload


def useful_limits(workload: Workload) -> dict[str, float]:
    """Values above which a knob cannot matter under a closed loop: more sequences than clients
    never run, and more tokens than all clients' prompts are never in one step."""
    if not workload.arrivals.closed:
        return {}
    clients = workload.arrivals.level
    limits = {"max_num_seqs": clients}
    longest = {"fixed": workload.prompt.a, "uniform": workload.prompt.b}.get(workload.prompt.kind)
    if longest is not None:
        limits["chunk_size"] = clients * longest
    return limits


def usual_knobs(knobs: Mapping[str, KnobRange]) -> list[str]:
    """What is turned where nothing is named: the live knobs of the table that this target has and
    that its server obeys."""
    given = {name: bounds.value for name, bounds in knobs.items() if bounds.value != UNSET}
    return [name for name in LIVE_KNOBS if name in knobs and obeyed(name, given) == name]


def default_axes(knobs: Mapping[str, KnobRange], useful: Mapping[str, float]) -> list[Axis]:
    """Their ranges: of the table, inside what the target allows and what the load can use."""
    axes = []
    for name in usual_knobs(knobs):
        knob, bounds = KNOBS[name], knobs[name]
        low, high = float(knob.low or 0), min(float(knob.high or math.inf), bounds.high)
        if name in useful:
            high = min(high, useful[name])
            low = min(low, float(math.ceil(high / 8)))
        low = max(low, bounds.low)
        if low < high:
            axes.append(Axis(name, knob.kind == "int", low, high, knob.log, own=bounds.value))
    return axes
