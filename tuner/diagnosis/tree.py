"""The tree: signals in, findings out. Pure, except for the history handed in.

Order is meaning: what cannot be trusted is not judged, no traffic is a state of its own, and an
earlier node that fires turns the later ones it explains into symptoms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tuner.diagnosis import capacity, endings, gates, replicas, tpot, ttft
from tuner.diagnosis.context import Case, Check
from tuner.diagnosis.model import Diagnosis, NodeResult, State
from tuner.diagnosis.settle import History, settle
from tuner.diagnosis.signals import Signals
from tuner.diagnosis.thresholds import DEFAULT, Thresholds
from tuner.slo.grammar import Clause
from tuner.units import count_text


class Slos(Protocol):
    """What the tree needs of tuner.slo.SloSet."""

    @property
    def clauses(self) -> Sequence[Clause]: ...


def diagnose(
    signals: Signals,
    slos: Slos | None = None,
    history: History | None = None,
    *,
    thresholds: Thresholds = DEFAULT,
) -> Diagnosis:
    """Judge one look at a target.

    Without a history a node fires at once (one-shot use) with a confidence of `likely` at most;
    with one, it fires and clears by hysteresis. Without an SLO for TTFT or TPOT/ITL those nodes are
    not_applicable and `missing_slos` names them.
    """
    clauses = tuple(slos.clauses) if slos is not None else ()
    case = Case(signals, thresholds, clauses, history.best_hit_rate if history else None)
    nodes = settle(case, _checks(case), history)
    if history is not None:
        history.remember(case)
    missing = []
    if not case.clauses_for("ttft"):
        missing.append("ttft")
    if not case.clauses_for("tpot", "itl"):
        missing.append("tpot or itl")
    draft = Diagnosis(
        at_s=signals.at_s, window_s=signals.window_s, target=signals.target,
        dialect=signals.dialect, traffic=case.traffic, headline="", nodes=nodes,
        missing_slos=tuple(missing), config=dict(signals.config),
        config_by_replica=dict(signals.config_by_replica), up=signals.status.up,
    )  # fmt: skip
    return replace(draft, headline=_headline(draft))


def _checks(case: Case) -> list[Check]:
    trust = gates.trust(case)
    latencies = [*ttft.nodes(case), *tpot.nodes(case)]
    late = any(check.firing for check in latencies)
    rest = [
        gates.stall(case),
        *endings.nodes(case),
        *latencies,
        *capacity.throughput(case, late),
        capacity.preemptions(case),
        *replicas.nodes(case),
    ]
    if trust.node.missing:
        return [trust, *(_barred(check, trust.node) for check in rest)]
    if case.traffic == "no_traffic":
        return [trust, *(_silent(check) for check in rest)]
    return [trust, *rest]


def _barred(check: Check, trust: NodeResult) -> Check:
    """Discard, don't diagnose: figures that cannot be trusted are not shown either."""
    node = replace(
        check.node, state=State.CANT_TELL, summary=f"not judged: {trust.summary}", value=None,
        threshold=None, levers=(), evidence=(), missing=("trusted data",),
        how_to_get=trust.how_to_get,
    )  # fmt: skip
    return Check(node)


def _silent(check: Check) -> Check:
    """Without traffic every figure is 0/0; what is not exported shows once traffic comes."""
    node = replace(
        check.node, state=State.NOT_APPLICABLE, summary="no traffic in the window", value=None,
        threshold=None, levers=(), evidence=(), missing=(), how_to_get="",
    )  # fmt: skip
    return Check(node)


def _headline(diagnosis: Diagnosis) -> str:
    causes = diagnosis.causes
    if causes:
        first, more = causes[0], len(causes) - 1
        also = f" (and {more} more)" if more else ""
        return f"{first.title}: {first.summary}{also}"
    if diagnosis.traffic == "no_traffic":
        return "No traffic in the window: nothing to diagnose"
    watched = sum(node.on_watch for node in diagnosis.nodes)
    yet = f" yet: {count_text(watched, 'node')} on watch" if watched else ""
    unknown = sum(node.state is State.CANT_TELL for node in diagnosis.nodes)
    unsure = f"; {count_text(unknown, 'node')} cannot be told" if unknown else ""
    return f"Nothing fires{yet}{unsure}"
