"""Node 4: TPOT or ITL misses its SLO, and what stretches the gaps between tokens."""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis import levers, roofline
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import State
from tuner.diagnosis.slo_node import gate, judge_latency, seconds
from tuner.diagnosis.spread import BEYOND, spread, value_of

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
    p50 = value_of(case.s["itl_p50"], case.s["itl"])
    clauses = case.clauses_for("tpot", "itl")
    if not (check.firing and clauses) or not all(p50 < clause.bound for clause in clauses):
        return check
    said = f"{check.node.summary}, but the median gap of {seconds(p50)} is within the SLO"
    return Check(replace(check.node, state=State.OK, levers=(), summary=said), check.exact)


def _interference(case: Case) -> Check:
    """ITL p99 / p50, where prompts share steps with running requests: as the engine counts it, else
    where one step in a hundred, as many as p99 sees, holds more tokens than requests run."""
    frame = Frame(
        "4.interference", "Prefill interference", "4",
        ("itl_p50", "itl_p99", "step_tokens_p99"), ("running_mean", "kind_s"), "p99 / p50",
        (levers.SMALLER_CHUNK,),
    )  # fmt: skip
    share = roofline.kind_share(case, ("mixed",))
    if share is not None:
        shared = share >= case.t("mixed_time_share")
        said = f"steps with prompts beside running requests take {share:.0%} of the time"
    else:
        ratio = _step_tokens_per_running(case, "step_tokens_p99")
        shared = ratio >= case.t("mixed_step_ratio")
        said = f"p99 step holds {ratio:.1f} × the running requests' tokens"
    if (unread := frame.unread(case)) is not None:
        return unread
    gaps = spread(case, "itl")
    if shared and gaps.unknown(case.t("itl_ratio_warning")):
        why = "p99 / p50 of ITL may be any larger than the histogram tells"
        return frame.cant_tell(case, why, ("itl_p99",), BEYOND)
    check = frame.judge(
        case, lambda: gaps.value,
        case.t("itl_ratio_warning"), case.t("itl_ratio_critical"), when=shared,
        says=lambda v: f"ITL p99 is {v:.1f} × p50; {said}",
    )  # fmt: skip
    return replace(check, exact=share is not None and gaps.exact)


def _step_tokens_per_running(case: Case, quantile: str) -> float:
    """Tokens of a step of that quantile per request that runs on one engine, at least: where the
    histogram's bucket leaves it open, its lower edge, so that decodes alone are not taken for
    prompts."""
    reading = case.s[quantile]
    tokens = reading.bucket[0] if reading.bucket else reading.value or 0.0
    return max(0.0, tokens) / max(1.0, case.running_each())


def _mixed(case: Case, interference: Check) -> Check:
    """4.mixed: prompts in most steps raise the usual gap itself, so that no ratio shows it."""
    frame = Frame(
        "4.mixed", "Prompts in most steps", "4", ("kind_s",), ("itl_p50",),
        "share of computing time", (levers.SMALLER_CHUNK, levers.MORE_REPLICAS),
    )  # fmt: skip
    if interference.firing:
        return frame.not_applicable(case, "the ratio of the gaps shows it: Prefill interference")
    if not case.s.of("kind_s"):
        inferred = replace(frame, uses=("step_tokens_p50",), exact=False,
                           unit="tokens per step / running")  # fmt: skip
        return inferred.judge(
            case, lambda: _step_tokens_per_running(case, "step_tokens_p50"),
            case.t("mixed_step_ratio"),
            says=lambda v: f"half of the steps hold {v:.1f} × the running requests' tokens or more",
        )  # fmt: skip
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
