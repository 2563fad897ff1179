"""The search space: knobs with values or ranges inside what the target allows.

Each knob is searched as a number in [0, 1] and decoded one after the other, over those settings
only that leave the later knobs a way to meet every constraint: no point of the cube is ever
infeasible, and no trial is wasted on a configuration the engine would refuse.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from engine.knobs import KNOBS
from tuner.errors import UserError
from tuner.search.axis import Axis, is_number
from tuner.search.expressions import Expression, parse_expression
from tuner.search.knob_text import Link, names_of, parse_knob
from tuner.search.usual import default_axes
from tuner.targets.base import KnobRange, Setting

__all__ = ["Axis", "Space", "check_names", "joint_space", "parse_axis"]

TOKEN_EACH = "chunk_size >= max_num_seqs"
"""Every running sequence needs one token of the step; all engines refuse less at their start."""


@dataclass(frozen=True)
class Space:
    """axes and links in decoding order: what a condition or a link reads comes before it."""

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Setting]
    """Values of the knobs that are not searched, as the baseline has them."""
    links: tuple[Link, ...] = ()
    constraints: tuple[Expression, ...] = ()
    baseline: Mapping[str, Setting] = field(default_factory=dict)
    """All knobs' own settings: what a conditional knob has where its condition does not hold."""
    _known: dict[Any, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def decode(self, units: Mapping[str, float]) -> dict[str, Setting]:
        """A full, feasible configuration."""
        config = self._begun()
        for index, axis in enumerate(self.axes):
            among = self._allowed(index, config)
            config[axis.name] = (
                axis.decode(units[axis.name], among) if among is not None
                else self.baseline[axis.name]
            )  # fmt: skip
            self._follow(config)
        return {name: config[name] for name in sorted(config, key=self._order)}

    def encode(self, config: Mapping[str, Setting]) -> dict[str, float]:
        """The position of a configuration; where it is not of this space, one near it."""
        known = dict(config)
        units = {}
        for index, axis in enumerate(self.axes):
            earlier = {n: v for n, v in known.items() if n not in self.names[index:]}
            among = self._allowed(index, earlier)
            units[axis.name] = 0.5 if among is None else axis.encode(known[axis.name], among)
        return units

    def followed(self, config: Mapping[str, Setting]) -> dict[str, Setting]:
        """The configuration with every linked knob set by what it follows."""
        leading = {n: v for n, v in config.items() if n not in {link.name for link in self.links}}
        self._follow(leading)
        return dict(config) | leading

    def feasible(self, config: Mapping[str, Setting]) -> bool:
        """Whether a full configuration meets every constraint."""
        return all(constraint.holds(config) for constraint in self.constraints)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; axes are --knob texts, constraints --constraint texts."""
        return {
            "axes": [str(part) for part in (*self.axes, *self.links)],
            "fixed": dict(self.fixed),
            "constraints": [c.text for c in self.constraints if c.text != TOKEN_EACH],
        }

    @property
    def meaning(self) -> str:
        """What positions in the cube mean: another text, other configurations."""
        told = self.as_dict()
        rules = f" {told['constraints']}" if told["constraints"] else ""
        own = [f"{axis.name}={axis.own_step:g}" for axis in self.axes if axis.own_step is not None]
        return f"{told['axes']}{rules}{own or ''}"

    def _begun(self) -> dict[str, Setting]:
        config = dict(self.fixed)
        self._follow(config)
        return config

    def _follow(self, config: dict[str, Setting]) -> None:
        """Set every linked knob whose leaders are set."""
        for _ in self.links:  # one may follow another
            for link in self.links:
                if link.name not in config and link.expression.names <= config.keys():
                    config[link.name] = link.value(config)

    def _allowed(self, index: int, config: Mapping[str, Setting]) -> tuple[Setting, ...] | None:
        """The settings of an axis after those before it; None where its condition does not hold.
        All of them where none is allowed: the configuration is not of this space."""
        axis = self.axes[index]
        if axis.condition is not None and not axis.condition.holds(config):
            return None
        if axis.name not in self._entangled:
            return axis.settings
        found = [
            value for value in axis.settings
            if self._completable(dict(config) | {axis.name: value}, index + 1)
        ]  # fmt: skip
        return tuple(found) or axis.settings

    def _completable(self, config: dict[str, Setting], index: int) -> bool:
        """Whether some settings of the axes from index on meet every constraint."""
        key = (index, tuple(sorted((n, v) for n, v in config.items() if n in self._entangled)))
        if key not in self._known:
            self._known[key] = self._search(config, index)
        return self._known[key]

    def _search(self, config: dict[str, Setting], index: int) -> bool:
        self._follow(config)
        if not all(link.allows(config.get(link.name)) for link in self.links):
            return False
        for constraint in self.constraints:
            if constraint.names <= config.keys() and not constraint.holds(config):
                return False
        while index < len(self.axes) and self.axes[index].name not in self._entangled:
            index += 1
        if index == len(self.axes):
            return True
        axis = self.axes[index]
        settings = axis.settings
        if axis.condition is not None and not axis.condition.holds(config):
            settings = (self.baseline[axis.name],)
        return any(self._completable(config | {axis.name: value}, index + 1) for value in settings)

    @cached_property
    def _entangled(self) -> frozenset[str]:
        """Knobs on which a constraint, a condition or a link depends, in whatever way."""
        names = {name for c in self.constraints for name in c.names}
        names |= {n for a in self.axes if a.condition for n in (a.name, *a.condition.names)}
        names |= {n for link in self.links for n in (link.name, *link.expression.names)}
        return frozenset(names)

    def _order(self, name: str) -> tuple[int, str]:
        return (list(KNOBS).index(name), "") if name in KNOBS else (len(KNOBS), name)


def joint_space(
    knobs: Mapping[str, KnobRange],
    texts: Sequence[str] = (),
    useful: Mapping[str, float] | None = None,
    constraints: Sequence[str] = (),
) -> Space:
    """The space of --knob and --constraint texts; without --knob, the default knobs in the target's
    bounds.

    useful: see usual.useful_limits; it caps default ranges only. Raises UserError.
    """
    if not knobs:
        raise UserError(
            "this server offers no knob the tuner can turn; start slotune's engine with "
            "--enable-admin, or let the tuner start the server (--target vllm), or measure what it "
            "carries as it is: `tuner sweep --url URL --knob concurrency=1:64`"
        )
    parts = [parse_knob(text, knobs) for text in texts]
    if not any(isinstance(part, Axis) for part in parts):
        taken = {part.name for part in parts}
        parts += [a for a in default_axes(knobs, useful or {}) if a.name not in taken]
    names = [part.name for part in parts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"--knob {min(twice)} is given twice; list all its values once")
    baseline = {name: knob.value for name, knob in knobs.items()}
    space = Space(
        axes=_ordered([part for part in parts if isinstance(part, Axis)]),
        fixed={name: value for name, value in baseline.items() if name not in names},
        links=tuple(part for part in parts if isinstance(part, Link)),
        constraints=tuple(_rules(constraints, parts, baseline)),
        baseline=baseline,
    )
    _check(space)
    return space


def parse_axis(text: str, knobs: Mapping[str, KnobRange]) -> Axis:
    """A --knob text that gives values of its own. Raises UserError."""
    part = parse_knob(text, knobs)
    if isinstance(part, Link):
        raise UserError(f"--knob {text!r}: a knob that follows others has no values to vary")
    return part


def check_names(texts: Sequence[str]) -> None:
    """UserError for a knob that no target has; needs no running server."""
    names_of(texts)


def _ordered(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The table's order, but a conditional knob after what its condition reads."""
    left = sorted(axes, key=lambda a: list(KNOBS).index(a.name) if a.name in KNOBS else len(KNOBS))
    names = {axis.name for axis in left}
    found: list[Axis] = []
    while left:
        done = {axis.name for axis in found}
        ready = next(
            (a for a in left if not a.condition or a.condition.names & names <= done), None
        )
        if ready is None:
            raise UserError(f"--knob {left[0]}: the conditions go round in a circle")
        found.append(ready)
        left.remove(ready)
    return tuple(found)


def _rules(
    texts: Sequence[str], parts: Sequence[Axis | Link], baseline: Mapping[str, Setting]
) -> Iterator[Expression]:
    """The constraints given, and the one that every engine has."""
    chosen = {part.name for part in parts}
    words = {p.name for p in parts if isinstance(p, Axis) and not all(map(is_number, p.settings))}
    words |= {n for n, value in baseline.items() if n not in chosen and not is_number(value)}
    if all(name in baseline and name not in words for name in ("chunk_size", "max_num_seqs")):
        yield parse_expression(TOKEN_EACH, "", known=[*baseline])
    for text in texts:
        rule = parse_expression(text, "--constraint", known=[*baseline])
        if not rule.names:
            raise UserError(f"--constraint {text!r} names no knob")
        if not rule.names & chosen:
            varied = ", ".join(sorted(chosen))
            raise UserError(f"--constraint {text!r} is about no knob that varies ({varied})")
        yield rule


def _check(space: Space) -> None:
    """UserError when words meet numbers in an expression, or when no point is left."""
    kinds = [list({type(v): v for v in axis.settings}.values()) for axis in space.axes]
    for sample in itertools.islice(itertools.product(*kinds), 64):
        config = dict(space.fixed) | dict(zip(space.names, sample, strict=True))
        for name, value in space.baseline.items():
            config.setdefault(name, value)
        for expression in (*space.constraints, *(a.condition for a in space.axes if a.condition)):
            expression.holds(config)
    if not space.axes or space._completable(space._begun(), 0):
        return
    for constraint in space.constraints:
        alone = Space(space.axes, space.fixed, space.links, (constraint,), space.baseline)
        if not alone._completable(alone._begun(), 0):
            raise UserError(_nothing_left(space, constraint))
    raise UserError(
        "no combination of the knobs' values meets all constraints together: "
        + "; ".join(constraint.text for constraint in space.constraints)
    )


def _nothing_left(space: Space, constraint: Expression) -> str:
    if constraint.text != TOKEN_EACH:
        return f"--constraint {constraint.text!r} leaves no combination of the knobs' values"
    settings = {axis.name: axis.settings for axis in space.axes}
    chunks = settings.get("chunk_size", (space.baseline["chunk_size"],))
    seqs = settings.get("max_num_seqs", (space.baseline["max_num_seqs"],))
    return (
        f"chunk_size ({chunks[-1]}) must be at least max_num_seqs ({seqs[0]}): every running "
        "sequence needs one token of the step; widen --knob chunk_size or lower max_num_seqs"
    )
