"""Nodes 5 to 7: throughput against its own capacity, preemptions, unevenness between replicas."""

from __future__ import annotations

import statistics
from dataclasses import replace

from tuner.diagnosis import levers, limits
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import State
from tuner.slo.grammar import Clause

LEAST = {
    "running": "uneven_least_running",
    "kv_usage": "uneven_least_kv",
    "ttft": "uneven_least_ttft_s",
}
"""Signal → threshold below which the fullest replica has too little for a ratio to tell."""


def throughput(case: Case) -> list[Check]:
    load, cap = _load_limited(case), _cap(case)
    frame = Frame("5", "Throughput", uses=("running", "waiting", "generated"), unit="tok/s")
    if (unread := frame.unread(case)) is not None:
        return [unread, load, cap]
    rate = (case.s.value("generated") or 0.0) / case.s.window_s
    missed = [c for c in case.clauses_for("output_tps", "total_tps", "rps") if _missed(case, c)]
    if missed and not load.node.value:
        state, said = State.WARNING, f"{rate:.1f} tok/s; misses {missed[0]}"
    elif cap.firing:
        state, said = State.WARNING, cap.node.summary
    elif load.node.value:
        state, said = State.OK, f"{rate:.1f} tok/s, load-limited: not a server problem"
    else:
        state, said = State.OK, f"{rate:.1f} tok/s, at its limit: {_binding(case)}"
    return [Check(replace(frame.blank(case, state, said), value=rate)), load, cap]


def _missed(case: Case, clause: Clause) -> bool:
    counts = {
        "output_tps": ("generated",),
        "total_tps": ("generated", "prompted"),
        "rps": ("finished",),
    }[clause.metric]
    values = [case.s.value(name) for name in counts]
    if any(value is None for value in values) or not clause.op.startswith((">", "≥")):
        return False
    return sum(v or 0.0 for v in values) / case.s.window_s < clause.bound


def _binding(case: Case) -> str:
    """What a busy engine is bound by, in words."""
    for check in limits.leaves(case):
        if check.firing:
            return check.node.title
    return "none of its limits is reached, requests merely run"


def _load_limited(case: Case) -> Check:
    """value 1 when nothing waits and no limit is near: more load would be served."""
    frame = Frame("5.load_limited", "Load-limited", "5", ("running", "waiting", "kv_usage"))
    if (unread := frame.unread(case)) is not None:
        return unread
    cap = case.s.number("max_num_seqs")
    near = cap is not None and case.running() >= case.t("at_cap") * cap
    free = case.kv_usage() < case.t("kv_full") and not near
    limited = case.waiting() < case.t("waiting_some") and free
    said = "nothing waits and no limit is near: not a server problem"
    if not limited:
        said = f"no: {case.waiting():.1f} wait, {case.running():.0f} run, KV {case.kv_usage():.0%}"
    return Check(replace(frame.blank(case, State.OK, said), value=float(limited)))


def _cap(case: Case) -> Check:
    frame = Frame("5.seq_cap", "Cap below what KV allows", "5",
                  ("running", "waiting", "kv_usage"), unit="of the cap",
                  levers=(levers.MORE_SEQS,))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    cap = case.s.number("max_num_seqs")
    if not cap:
        return frame.unset(case, "max_num_seqs")
    waits = case.waiting() >= case.t("waiting_some") and case.kv_usage() < case.t("kv_low")
    return frame.judge(
        case, lambda: case.running() / cap, case.t("at_cap"), when=waits,
        says=lambda share: f"{case.running():.0f} of {cap:.0f} run, {case.waiting():.1f} wait, "
        f"KV only {case.kv_usage():.0%}",
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
        says=lambda v: f"{events:.0f} preemptions over {finished:.0f} finished requests",
    )  # fmt: skip


def uneven(case: Case) -> Check:
    """Node 7: the fullest replica against the median one, by running, KV and TTFT."""
    frame = Frame("7", "Uneven replicas", also=("running_by_replica", "kv_usage_by_replica",
                  "ttft_by_replica"), unit="max / median", levers=(levers.ROUTER,))  # fmt: skip
    ratios: dict[str, tuple[float, str]] = {}
    for signal, least in LEAST.items():
        values = case.s.of(f"{signal}_by_replica")
        if len(values) < 2:
            continue
        fullest = max(values, key=lambda name: values[name])
        middle = statistics.median_low(values.values())
        if values[fullest] >= case.t(least):
            ratios[signal] = (values[fullest] / max(middle, 1e-9), fullest)
    if not ratios:
        if case.s.breakdowns.get("running_by_replica"):
            return frame.not_applicable(case, "no replica has work")
        return frame.not_applicable(case, "one replica only")
    worst = max(ratios, key=lambda name: ratios[name][0])
    ratio, name = ratios[worst]
    shown = f"{ratio:.1f} ×" if ratio < 100 else "far above"
    return frame.judge(
        case, lambda: ratio, case.t("uneven_warning"), case.t("uneven_critical"),
        says=lambda _: f"{worst} of {name} is {shown} the median replica's",
        evidence=tuple((k, f"{v[0]:.2f} × at {v[1]}") for k, v in ratios.items()),
    )  # fmt: skip
