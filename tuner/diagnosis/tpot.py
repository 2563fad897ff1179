"""Node 4: TPOT or ITL misses its SLO, and what stretches the gaps between tokens."""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis import levers, roofline
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import State
from tuner.diagnosis.registry import how_to_get
from tuner.diagnosis.slo_node import gate, judge_latency, seconds

NODE = Frame("4", "TPOT / ITL", also=("tpot", "itl"))


def nodes(case: Case) -> list[Check]:
    top = judge_latency(case, NODE, case.clauses_for("tpot", "itl"), "tpot")
    interference = _interference(case)
    leaves = [
        interference,
        _mixed(case, interference),
        _preempted(case),
        _of_the_usual_gap(case, roofline.bandwidth_bound(case)),
        _of_the_usual_gap(case, roofline.host_bound(case)),
        roofline.throttled(case),
    ]
    return [top, *(gate(top, leaf) for leaf in leaves)]


def _of_the_usual_gap(case: Case, check: Check) -> Check:
    """A limit that slows every step is not why only some gaps are long: where the median gap is
    within the SLO, that limit is as it should be."""
    p50 = case.s.value("itl_p50")
    clauses = case.clauses_for("tpot", "itl")
    if not check.firing or p50 is None or any(p50 >= clause.bound for clause in clauses):
        return check
    said = f"{check.node.summary}, but the median gap of {seconds(p50)} is within the SLO"
    return Check(replace(check.node, state=State.OK, levers=(), summary=said), check.exact)


def _interference(case: Case) -> Check:
    """ITL p99 / p50, where prompts share steps with running requests: as the engine counts it, else
    where one step in ten holds more tokens than requests run."""
    frame = Frame(
        "4.interference", "Prefill interference", "4",
        ("itl_p50", "itl_p99", "step_tokens_p90"), ("running_mean", "kind_s"), "p99 / p50",
        (levers.SMALLER_CHUNK,), ("lowering max_num_seqs: one prefill stalls them all alike",),
    )  # fmt: skip
    share = roofline.kind_share(case, ("mixed",))
    if share is not None:
        shared = share >= case.t("mixed_time_share")
        said = f"steps with prompts beside running requests take {share:.0%} of the time"
    else:
        ratio = (case.s.value("step_tokens_p90") or 0.0) / max(1.0, case.running())
        shared = ratio >= case.t("mixed_step_ratio")
        said = f"p90 step holds {ratio:.1f} × the running requests' tokens"
    p50, p99 = case.s.value("itl_p50"), case.s.value("itl_p99")
    return frame.judge(
        case, lambda: p99 / p50 if p99 is not None and p50 else 0.0,
        case.t("itl_ratio_warning"), case.t("itl_ratio_critical"), when=shared,
        says=lambda v: f"ITL p99 is {v:.1f} × p50; {said}",
    )  # fmt: skip


def _mixed(case: Case, interference: Check) -> Check:
    """4.mixed: prompts in most steps raise the usual gap itself, so that no ratio shows it."""
    frame = Frame(
        "4.mixed", "Prompts in most steps", "4", ("kind_s",), ("itl_p50",),
        "share of computing time", (levers.SMALLER_CHUNK, levers.MORE_REPLICAS),
    )  # fmt: skip
    if not case.s.of("kind_s"):
        missing = ("slotune:step_kind_seconds_total",)
        why = "steps are not told by what they hold"
        return frame.cant_tell(case, why, missing, how_to_get("kind_s"))
    if interference.firing:
        return frame.not_applicable(case, "the ratio of the gaps shows it: Prefill interference")
    share = roofline.kind_share(case, ("mixed",))
    return frame.judge(
        case, lambda: share or 0.0, case.t("kind_most"), when=share is not None,
        says=lambda v: f"steps with prompts beside running requests take {v:.0%} of the time",
    )  # fmt: skip


def _preempted(case: Case) -> Check:
    frame = Frame("4.preemptions", "Preemptions", "4", ("preemptions", "finished"),
                  unit="per request", levers=(levers.MORE_KV, levers.FEWER_SEQS))  # fmt: skip
    events, finished = case.s.value("preemptions") or 0.0, case.s.value("finished") or 0.0
    return frame.judge(
        case, lambda: events / max(1.0, finished),
        case.t("preemption_warning"), case.t("preemption_critical"),
        when=events >= case.t("preemption_events"),
        says=lambda v: f"{v:.3f} preemptions per request: see node 6",
    )  # fmt: skip
