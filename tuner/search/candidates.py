"""Which points are measured before the sampler chooses, and which deserve a confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from engine.knobs import KNOBS
from tuner.search.objective import Objective
from tuner.search.proposals import result_value
from tuner.search.space import Space
from tuner.targets.base import Setting
from tuner.trial import Outcome, worst_margin

SWEEPS = (
    ("chunk_size", 0.5), ("chunk_size", 0.25), ("max_num_seqs", 0.66), ("chunk_size", 0.75),
    ("gpu_memory_utilization", 0.5), ("max_num_seqs", 0.4),
)  # fmt: skip
"""Where single-variable sweeps look, as positions on each knob's axis; the knob that decides how
long others wait comes first."""


def sweep_points(
    space: Space, baseline: dict[str, Setting], count: int
) -> list[dict[str, Setting]]:
    """Up to count configurations that differ from the baseline in one knob."""
    axes = {axis.name: axis for axis in space.axes}
    known = {name for name, _ in SWEEPS}
    others = [(name, position) for position in (0.5, 0.25) for name in axes if name not in known]
    points = [
        _feasible(baseline | {name: axes[name].decode(position)})
        for name, position in (*SWEEPS, *others)
        if name in axes
    ]
    unique = [p for i, p in enumerate(points) if p not in points[:i] and p != baseline]
    return unique[:count]


def ranked(outcomes: Sequence[Outcome], objective: Objective) -> list[dict[str, Setting]]:
    """Configurations worth confirming, best first: those that meet every clause at the point
    estimate, by their objective. Several runs of a configuration count by their mean."""
    by_config: dict[tuple[tuple[str, Setting], ...], list[Outcome]] = {}
    for outcome in outcomes:
        by_config.setdefault(tuple(sorted(outcome.config.items())), []).append(outcome)
    scored = []
    for runs in by_config.values():
        values = [v for v in (result_value(o, objective) for o in runs) if v is not None]
        if values and all(run.meets_by_estimate for run in runs):
            scored.append((sum(values) / len(values), dict(runs[0].config)))
    scored.sort(key=lambda pair: pair[0], reverse=objective.higher_is_better)
    return [config for _, config in scored]


def closest(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The outcome with a result that is nearest to meeting every clause."""
    with_result = [o for o in outcomes if o.ok]
    return min(with_result, key=worst_margin, default=None)


def _feasible(config: dict[str, Setting]) -> dict[str, Setting]:
    """A chunk below max_num_seqs takes max_num_seqs down with it."""
    seqs, chunk = config.get("max_num_seqs"), config.get("chunk_size")
    if seqs is None or chunk is None or chunk >= seqs:
        return config
    return config | {"max_num_seqs": max(int(KNOBS["max_num_seqs"].low or 1), int(chunk))}
