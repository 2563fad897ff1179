"""From raw checks to results: hysteresis, confidence, and which firing nodes are symptoms.

Invariant: with a history, a node fires after two consecutive evaluations and clears after three
with a margin; a symptom keeps its state and names its cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tuner.diagnosis.context import Case, Check
from tuner.diagnosis.model import Confidence, NodeResult, State

EXPLAINS: dict[str, tuple[str, ...]] = {
    "1": ("2", "3", "4", "5", "6", "7"),
    "2.errors": ("5",),
    "3a.overload": (
        "3a.kv", "3a.seq_cap", "3a.token_budget", "2.rejections", "3c", "3d", "5", "6",
    ),
    "3a.kv": ("3b.thrash", "3c", "3d", "4.preemptions", "5", "6"),
    "3a.seq_cap": ("3c", "3d", "5"),
    "3a.token_budget": ("3c", "3d", "5"),
    "3a.compute": ("3a.token_budget", "3b.compute", "3c", "3d", "5"),
    "3a.deferred": ("3c", "5"),
    "3b.host": ("4.host",),
    "3b.long_prompt": ("3c",),
    "3b.thrash": ("3a.other", "3b.compute", "3c"),
    "3c": ("3b", "3a.other"),
    "6": ("4.preemptions",),
    "7.load": ("2.rejections", "3a", "3c", "3d", "4.preemptions", "5", "6"),
    "7.slow": (
        "2.rejections", "3a", "3b.compute", "3b.host", "3c", "3d", "4.bandwidth", "4.host",
        "4.preemptions", "5", "6",
    ),
    "7": ("3a.other", "3c"),
}  # fmt: skip
"""cause → what it explains (with all below). Node 6 is named by the leaves before it."""

BARE: dict[str, tuple[str, ...]] = {
    "3b.thrash": ("3a",), "7.load": ("4",), "7.slow": ("3b", "4"),
}  # fmt: skip
"""cause → nodes that it explains where no leaf below them fires."""


OF_LOOKS = ("0", "1")
"""Nodes that count no requests: what a look sees is so, and more looks make sure that it stays."""

WITHOUT_PARENT = "3e"
"""The one leaf that fires only while its parent is fine: the server is, the client is not."""


@dataclass(slots=True)
class Track:
    """One node's past: consecutive evaluations with and without its condition. by_past: as Check's,
    of the last."""

    active: bool = False
    met: int = 0
    unmet: int = 0
    evaluations: int = 0
    last: NodeResult | None = None
    by_past: bool = False


@dataclass(slots=True)
class History:
    """What hysteresis remembers of one target between evaluations; not shared by threads.

    best_hit_rate: the prefix hit rate before 3b.thrash began to fire by its fall, else None: the
    rate of the windows before forgets it while the cache still thrashes.
    """

    tracks: dict[str, Track] = field(default_factory=dict)
    best_hit_rate: float | None = None

    def track(self, key: str) -> Track:
        return self.tracks.setdefault(key, Track())

    def remember(self, case: Case) -> None:
        """To be called once an evaluation is settled."""
        track = self.track("3b.thrash")
        fell = track.active and track.by_past
        self.best_hit_rate = case.hit_rate_before() if fell else None


def settle(case: Case, checks: list[Check], history: History | None) -> tuple[NodeResult, ...]:
    nodes = [_settled(case, check, history) for check in checks]
    nodes = _under_firing_parents(nodes)
    return tuple(_with_symptoms(nodes))


def _settled(case: Case, check: Check, history: History | None) -> NodeResult:
    if history is None:
        return _with_confidence(case, check, check.node, evaluations=1)
    track = history.track(check.key)
    node = _hysteresis(case, check.node, track)
    if track.last is check.node:
        track.by_past = check.by_past
    return _with_confidence(case, check, node, track.met)


def _hysteresis(case: Case, node: NodeResult, track: Track) -> NodeResult:
    track.evaluations += 1
    if node.key == "0":  # trust has no memory: distrusted numbers must not be judged even once
        track.met = track.met + 1 if node.firing else 0
        return node
    if node.firing:
        track.met, track.unmet = track.met + 1, 0
        track.active = track.active or track.met >= case.t("fire_evaluations")
        if track.active:
            track.last = node
            return node
        return replace(node, state=State.OK, pending=True, levers=(),
                       summary=f"seen once, not yet confirmed: {node.summary}")  # fmt: skip
    track.met = 0
    if node.state is State.CANT_TELL:
        return node
    if node.state is State.NOT_APPLICABLE:
        track.active, track.unmet = False, 0
        return node
    if not track.active:
        return node
    track.unmet = track.unmet + 1 if _has_margin(case, node) else 0
    if track.unmet >= case.t("clear_evaluations"):
        track.active = False
        return node
    held = track.last.levers if track.last else ()
    return replace(node, state=State.WARNING, levers=held, pending=True,
                   summary=f"not yet cleared: {node.summary}")  # fmt: skip


def _has_margin(case: Case, node: NodeResult) -> bool:
    if node.value is None or not node.threshold or node.key == "1":
        return True
    if node.comparison.startswith("≤"):
        return node.value >= node.threshold * (1 + case.t("clear_margin"))
    gated = node.value >= node.threshold  # its value is over; another condition ended it
    return gated or node.value <= node.threshold * (1 - case.t("clear_margin"))


def _with_confidence(case: Case, check: Check, node: NodeResult, evaluations: int) -> NodeResult:
    if not node.firing:
        return node
    t = case.t
    requests = case.s.value("finished") or 0.0
    margin = _margin(node)
    high = (
        check.exact
        and not check.guess
        and requests >= t("high_requests")
        and evaluations >= t("high_evaluations")
        and margin >= t("high_margin")
    )
    seen = check.exact or margin >= 1.0
    likely = requests >= t("likely_requests") and seen and not check.guess
    if node.key in OF_LOOKS:
        high, likely = evaluations >= t("high_evaluations"), True
    if high:
        confidence = Confidence.HIGH
    else:
        confidence = Confidence.LIKELY if likely else Confidence.POSSIBLE
    return replace(node, confidence=confidence)


def _margin(node: NodeResult) -> float:
    """How far past the threshold, ≥ 1 when past it; 1 where there is no ratio to take."""
    if node.value is None or not node.threshold:
        return 1.0
    if node.comparison.startswith("≤"):
        return node.threshold / node.value if node.value > 0 else float("inf")
    return node.value / node.threshold


def _under_firing_parents(nodes: list[NodeResult]) -> list[NodeResult]:
    """A leaf held by hysteresis cannot outlive its parent, nor fire before it."""
    by_key: dict[str, NodeResult] = {}
    for node in nodes:
        parent = by_key.get(node.parent)
        alone = parent is not None and not parent.firing and node.key != WITHOUT_PARENT
        if node.firing and alone:
            node = replace(node, state=State.OK, pending=True, levers=(), confidence=None)
        by_key[node.key] = node
    return list(by_key.values())


def _with_symptoms(nodes: list[NodeResult]) -> list[NodeResult]:
    firing = {node.key for node in nodes if node.firing}
    parents = {node.key: node.parent for node in nodes}
    cause_of: dict[str, str] = {}
    for cause, explained in EXPLAINS.items():
        if cause not in firing:
            continue
        for key in firing:
            if key == cause or key in cause_of or not _below(key, explained, parents):
                continue
            if not _causes(key, cause, cause_of):
                cause_of[key] = cause
    for cause, bare in BARE.items():
        for key in set(bare) & firing if cause in firing else ():
            if not any(parents[leaf] == key for leaf in firing):
                cause_of.setdefault(key, cause)
    upwards = [node.key for node in reversed(nodes) if node.firing]  # leaves before their parents
    for key in upwards:  # a parent all of whose firing leaves are symptoms is one itself
        leaves = [leaf for leaf in firing if parents[leaf] == key]
        if key not in cause_of and leaves and all(leaf in cause_of for leaf in leaves):
            outer = {cause_of[leaf] for leaf in leaves if parents[cause_of[leaf]] != key}
            if outer and not any(_ancestor(key, cause, parents) for cause in outer):
                cause_of[key] = min(outer)
    return [replace(node, symptom_of=cause_of.get(node.key, "")) for node in nodes]


def _below(key: str, explained: tuple[str, ...], parents: dict[str, str]) -> bool:
    while key:
        if key in explained:
            return True
        key = parents.get(key, "")
    return False


def _ancestor(key: str, of: str, parents: dict[str, str]) -> bool:
    while of:
        of = parents.get(of, "")
        if of == key:
            return True
    return False


def _causes(key: str, effect: str, cause_of: dict[str, str]) -> bool:
    """Would naming `effect` as key's cause close a circle?"""
    while effect in cause_of:
        effect = cause_of[effect]
        if effect == key:
            return True
    return False
