"""In which order configurations are visited: so that servers restart as seldom as can be."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from tuner.targets.base import Config, KnobRange

Step = TypeVar("Step")


def restart_group(config: Config, knobs: Mapping[str, KnobRange]) -> Hashable:
    """What must be equal for two configurations to be measured on one start of the server."""
    return tuple(
        (name, type(value).__name__, value)
        for name, value in sorted(config.items())
        if name in knobs and not knobs[name].live
    )


def grouped(
    steps: Sequence[tuple[Config, Step]], knobs: Mapping[str, KnobRange], *, present: bool = True
) -> list[tuple[Config, Step]]:
    """The steps with those of one restart group together: groups in the order of their first step,
    steps of a group in their own order. present: the group in force now before all others."""
    groups: dict[Hashable, list[tuple[Config, Step]]] = {}
    if present:
        groups[restart_group({name: knob.value for name, knob in knobs.items()}, knobs)] = []
    for config, step in steps:
        groups.setdefault(restart_group(config, knobs), []).append((config, step))
    return [step for group in groups.values() for step in group]


def restarts(configs: Sequence[Config], knobs: Mapping[str, KnobRange]) -> int:
    """How often a visit in this order starts the server anew, the first start included."""
    groups = [restart_group(config, knobs) for config in configs]
    return sum(a != b for a, b in zip(groups, [None, *groups], strict=False))
