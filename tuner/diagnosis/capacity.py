"""Nodes 5 and 6: throughput against its own capacity, preemptions."""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis import levers, limits, roofline
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import State
from tuner.slo.grammar import Clause
from tuner.units import count_text

COUNTS = {
    "output_tps": ("generated",),
    "total_tps": ("generated", "prompted"),
    "rps": ("finished",),
}
"""Metric of an SLO → the counters whose growth it is."""


def throughput(case: Case, late: bool = False) -> list[Check]:
    """Node 5. late: a latency SLO is missed, so that the server is not merely waiting for load."""
    load, cap = _load_limited(case, late), _cap(case)
    counted = [name for clause in case.clauses_for(*COUNTS) for name in COUNTS[clause.metric]]
    uses = tuple(dict.fromkeys(("running", "waiting", "generated", *counted)))
    frame = Frame("5", "Throughput", uses=uses, unit="tok/s")
    if (unread := frame.unread(case)) is not None:
        return [unread, load, cap]
    rate = (case.s.value("generated") or 0.0) / case.s.window_s
    missed = [clause for clause in case.clauses_for(*COUNTS) if _missed(case, clause)]
    if missed and not load.node.value:
        state, said = State.WARNING, f"{rate:.1f} tok/s; misses {missed[0]}"
    elif cap.firing:
        state, said = State.WARNING, cap.node.summary
    elif load.node.value:
        state, said = State.OK, f"{rate:.1f} tok/s, load-limited: not a server problem"
    else:
        state, said = State.OK, f"{rate:.1f} tok/s; {_binding(case, late)}"
    return [Check(replace(frame.blank(case, state, said), value=rate)), load, cap]


def _missed(case: Case, clause: Clause) -> bool:
    if not clause.op.startswith((">", "≥")):
        return False
    total = sum(case.s.value(name) or 0.0 for name in COUNTS[clause.metric])
    return total / case.s.window_s < clause.bound


def _binding(case: Case, late: bool) -> str:
    """What a busy engine is bound by, in words."""
    for check in limits.leaves(case):
        if check.firing:
            return f"at its limit: {check.node.title}"
    if (bound := roofline.bound(case)) is not None:
        return bound
    if case.waiting() >= case.t("waiting_some"):
        return "requests wait below every limit"
    return "no limit is reached, but latency misses its SLO" if late else "no limit is reached"


def _load_limited(case: Case, late: bool) -> Check:
    """value 1 when nothing waits, no limit is near, the device has time and latency is met: more
    load would be served."""
    frame = Frame("5.load_limited", "Load-limited", "5", ("running", "waiting", "kv_usage"),
                  ("busy_s", "idle_s"))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    cap, busy = case.cap(), limits.busy_share(case)
    near = cap is not None and case.running() >= case.t("at_cap") * cap
    why_not = []
    if case.waiting() >= case.t("waiting_some"):
        why_not.append(f"{case.waiting():.1f} wait")
    if near or case.kv_usage() >= case.t("kv_full"):
        why_not.append(f"{case.running():.0f} run, KV {case.kv_usage():.0%}")
    if busy is not None and busy >= case.t("saturated_busy"):
        why_not.append(f"the device is busy {busy:.0%} of the time")
    if late:
        why_not.append("a latency SLO is missed")
    said = "nothing waits, no limit is near, latency is met: not a server problem"
    if why_not:
        said = f"no: {', '.join(why_not)}"
    return Check(replace(frame.blank(case, State.OK, said), value=float(not why_not)))


def _cap(case: Case) -> Check:
    frame = Frame("5.seq_cap", "Cap below what KV allows", "5",
                  ("running", "waiting", "kv_usage"), unit="of the cap",
                  levers=(levers.MORE_SEQS,))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    cap = case.cap()
    if not cap:
        return frame.unset(case, "max_num_seqs")
    room = case.kv_usage() < case.t("kv_low")
    waits = case.waiting() >= case.t("waiting_some")
    return frame.judge(
        case, lambda: case.running() / cap, case.t("at_cap"), when=waits and room,
        says=lambda share: f"{case.of_cap(case.running(), cap)}, {case.waiting():.1f} wait, "
        f"KV {'only ' if room else ''}{case.kv_usage():.0%}",
    )  # fmt: skip


def preemptions(case: Case) -> Check:
    frame = Frame(
        "6", "Preemptions", "", ("preemptions", "finished"), ("kv_usage",), "per finished request",
        (levers.MORE_KV, levers.FP8_KV, levers.FEWER_SEQS, levers.LESS_ACTIVATION,
         levers.MORE_REPLICAS),
        ("raising max_num_seqs: more requests would compete for the same KV",),
    )  # fmt: skip
    events, finished = case.s.value("preemptions") or 0.0, case.s.value("finished") or 0.0
    return frame.judge(
        case, lambda: events / max(1.0, finished),
        case.t("preemption_warning"), case.t("preemption_critical"),
        when=events >= case.t("preemption_events"),
        says=lambda v: f"{count_text(round(events), 'preemption')} over "
        f"{count_text(round(finished), 'finished request')}",
    )  # fmt: skip
