"""What the tree answers with: Diagnosis, NodeResult, Lever, as data that JSON carries unchanged.

Invariant: `cant_tell` names what is missing and how to get it, and is never shown as ok; a node
that an earlier one explains keeps its state and names its cause in `symptom_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    OK = "ok"
    CANT_TELL = "cant_tell"
    NOT_APPLICABLE = "not_applicable"

    @property
    def firing(self) -> bool:
        return self in (State.CRITICAL, State.WARNING)

    @property
    def word(self) -> str:
        """As a person reads it."""
        return {State.CANT_TELL: "can't tell", State.NOT_APPLICABLE: "n/a"}.get(self, self.value)


class Confidence(StrEnum):
    HIGH = "high"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class Lever:
    """One thing an operator can turn. knob is a name of engine.knobs where the tuner can turn it.

    direction: "up", "down", "on", "off" or "do" (an action outside the server's settings).
    """

    knob: str
    direction: str
    effect: str
    cost: str
    binds_next: str = ""
    will_not_help: str = ""

    @property
    def title(self) -> str:
        return self.knob if self.direction == "do" else f"{self.knob} {self.direction}"


@dataclass(frozen=True, slots=True)
class NodeResult:
    """One node of the tree. key is stable ("3a.kv"), parent the key it hangs under ("": a root).

    value and threshold share `unit`; comparison says how they are compared. samples are how many
    `counted` (requests, steps, gaps) of window_s the value was seen over, age_s the data's age at
    evaluation.
    summary is one sentence; evidence are (name, text) pairs; queries the exact PromQL asked.
    pending: the condition holds, but not yet for as many evaluations as firing takes.
    """

    key: str
    title: str
    state: State
    summary: str
    parent: str = ""
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    comparison: str = "≥"
    window_s: float = 0.0
    samples: int = 0
    counted: str = ""
    age_s: float | None = None
    confidence: Confidence | None = None
    levers: tuple[Lever, ...] = ()
    will_not_help: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    how_to_get: str = ""
    symptom_of: str = ""
    pending: bool = False
    evidence: tuple[tuple[str, str], ...] = ()
    queries: tuple[str, ...] = ()

    @property
    def firing(self) -> bool:
        return self.state.firing

    @property
    def seen_over(self) -> str:
        """`178 requests`; "" where nothing was counted, or an older version did not keep what."""
        if not self.counted:
            return ""
        noun = self.counted.removesuffix("s") if self.samples == 1 else self.counted
        return f"{self.samples:,} {noun}"

    @property
    def on_watch(self) -> bool:
        """Holds, and does not fire yet: neither a fault nor in order."""
        return self.pending and not self.firing


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All nodes in tree order (parents before children). traffic: "traffic", "no_traffic" or
    "unknown"; missing_slos names the SLOs without which a node could not be judged. config: the
    settings of the target, of several replicas those that are alike; config_by_replica: each one's
    own. up: whether the target answered."""

    at_s: float
    window_s: float
    target: str
    dialect: str
    traffic: str
    headline: str
    nodes: tuple[NodeResult, ...] = ()
    missing_slos: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    config_by_replica: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    up: bool = True

    @property
    def causes(self) -> tuple[NodeResult, ...]:
        """Firing nodes that no other one explains, the most specific of each branch.

        Critical ones first, then in tree order; answers cut off by max_tokens last, since only the
        client knows whether that was meant.
        """
        firing = [node for node in self.nodes if node.firing and not node.symptom_of]
        parents = {node.parent for node in firing}
        leaves = [node for node in firing if node.key not in parents]
        critical = State.CRITICAL
        return tuple(sorted(leaves, key=lambda n: (n.key == "2.length", n.state is not critical)))

    @property
    def unjudged(self) -> tuple[str, ...]:
        """A sentence for each missing SLO."""
        return tuple(
            f"No SLO for {name}: the nodes that need one show figures and no verdict. "
            "Give one with --slo."
            for name in self.missing_slos
        )

    @property
    def symptoms(self) -> tuple[NodeResult, ...]:
        return tuple(node for node in self.nodes if node.firing and node.symptom_of)

    @property
    def severity(self) -> State:
        states = {node.state for node in self.nodes}
        return next((s for s in (State.CRITICAL, State.WARNING) if s in states), State.OK)

    def node(self, key: str) -> NodeResult:
        return next(node for node in self.nodes if node.key == key)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Diagnosis:
        nodes = tuple(node_from_dict(node) for node in data["nodes"])
        rest = {**data, "nodes": nodes, "missing_slos": tuple(data["missing_slos"])}
        return cls(**rest)


def node_from_dict(data: Mapping[str, Any]) -> NodeResult:
    """The inverse of asdict. Raises KeyError, TypeError or ValueError for what is none."""
    fields = dict(data)
    fields["state"] = State(data["state"])
    fields["confidence"] = Confidence(data["confidence"]) if data["confidence"] else None
    fields["levers"] = tuple(Lever(**lever) for lever in data["levers"])
    fields["evidence"] = tuple((name, text) for name, text in data["evidence"])
    for name in ("will_not_help", "missing", "queries"):
        fields[name] = tuple(data[name])
    return NodeResult(**fields)
