"""How a node that hangs on an SLO is judged, and how its answer gates the leaves below it.

Without a clause nothing is judged and none is invented: the node is not_applicable, says which
clause is missing, and its leaves still show their values.
"""

from __future__ import annotations

from dataclasses import replace

from storage.sources.base import Reading
from tuner.diagnosis.context import SAMPLES, Case, Check, Frame, too_few
from tuner.diagnosis.model import State
from tuner.diagnosis.registry import quantile_name
from tuner.diagnosis.spread import BEYOND, value_of
from tuner.slo.grammar import Clause


def reading_name(clause: Clause) -> str | None:
    """The signal a clause is judged by; None for a stat that a histogram does not keep."""
    if clause.stat == "mean":
        return clause.metric
    if clause.stat == "median":
        return quantile_name(clause.metric, 0.5)
    return quantile_name(clause.metric, clause.quantile) if clause.quantile else None


def judge_latency(case: Case, frame: Frame, clauses: tuple[Clause, ...], missing: str) -> Check:
    """The node of the clause that is missed most, by value / bound."""
    if not clauses:
        example = "500ms" if missing == "ttft" else "50ms"
        why = f"no SLO names {missing}; add one, for example --slo '{missing}_p95<{example}'"
        return frame.not_applicable(case, why)
    checks = [_one(case, frame, clause) for clause in clauses]
    order = (State.CRITICAL, State.WARNING, State.CANT_TELL, State.OK, State.NOT_APPLICABLE)
    return min(checks, key=lambda c: (order.index(c.node.state), -_ratio(c)))


def _ratio(check: Check) -> float:
    value, threshold = check.node.value, check.node.threshold
    return value / threshold if value is not None and threshold else 0.0


def _one(case: Case, frame: Frame, clause: Clause) -> Check:
    name = reading_name(clause)
    if name is None or not clause.op.startswith(("<", "≤")):
        return frame.cant_tell(case, f"live histograms keep no {clause.stat} of {clause.metric}",
                               (str(clause),), "judge it with `tuner bench`")  # fmt: skip
    asked = replace(frame, uses=(name,), unit="s")
    if (unread := asked.unread(case)) is not None:
        return unread
    reading, mean = case.s[name], case.s[clause.metric]
    value, exact = value_of(reading, mean), _exact(reading, clause.bound)
    if reading.bound == "≥" and value < clause.bound:
        return asked.cant_tell(case, f"{name} is only known to be ≥ {value:g} s", (name,),
                               BEYOND)  # fmt: skip
    inclusive = clause.op in ("<=", "≤")
    missed = value > clause.bound if inclusive else value >= clause.bound
    state, few = State.OK, asked.few(case) if missed else ""
    if missed:
        far = value >= clause.bound * case.t("slo_critical") and not few
        state = State.CRITICAL if far else State.WARNING
    said = f"{name} {_shown(reading, value)}, SLO {clause}"
    node = replace(asked.blank(case, state, said), value=value, threshold=clause.bound,
                   comparison=">" if inclusive else "≥", evidence=too_few(few))  # fmt: skip
    return Check(node, exact, guess=bool(few))


def _exact(reading: Reading, slo_bound: float) -> bool:
    """Whether the histogram shows on which side of the SLO's bound a quantile lies: inside a bucket
    that the bound divides it is a guess."""
    low, high = reading.bucket or (slo_bound, slo_bound)
    return not reading.bound and not low < slo_bound < high


def _shown(reading: Reading, value: float) -> str:
    """A quantile below the first bucket is known by that bucket's bound, and judged by the mean."""
    told = f"{reading.bound}{seconds(reading.value or 0.0)}"
    return f"{told} (mean {seconds(value)})" if value != reading.value else told


def gate(parent: Check, leaf: Check) -> Check:
    """A leaf under a parent that does not fire keeps its values and cannot fire; under one that few
    samples hold at a warning it is none that is worse or surer."""
    if not leaf.firing:
        return leaf
    if parent.firing:
        return _no_surer(parent, leaf) if parent.guess else leaf
    state = parent.node.state
    note = {
        State.NOT_APPLICABLE: "not judged",
        State.CANT_TELL: "not judged: " + parent.node.summary,
        State.OK: "no fault",
    }[state]
    node = replace(leaf.node, state=state, summary=f"{note}; {leaf.node.summary}", levers=())
    if state is State.CANT_TELL:
        node = replace(node, missing=parent.node.missing, how_to_get=parent.node.how_to_get)
    return replace(leaf, node=node)


def _no_surer(parent: Check, leaf: Check) -> Check:
    few = tuple(pair for pair in parent.node.evidence if pair[0] == SAMPLES)
    evidence = leaf.node.evidence + tuple(pair for pair in few if pair not in leaf.node.evidence)
    node = replace(leaf.node, state=State.WARNING, evidence=evidence)
    return replace(leaf, node=node, guess=True)


def seconds(value: float) -> str:
    """0.0123 → "12.3 ms", 2.5 → "2.5 s"."""
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
