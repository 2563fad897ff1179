"""Node 4: TPOT or ITL misses its SLO, and what stretches the gaps between tokens."""

from __future__ import annotations

from tuner.diagnosis import levers, roofline
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.slo_node import gate, judge_latency

NODE = Frame("4", "TPOT / ITL", also=("tpot", "itl"))


def nodes(case: Case) -> list[Check]:
    top = judge_latency(case, NODE, case.clauses_for("tpot", "itl"), "tpot")
    leaves = [_interference(case), _preempted(case), roofline.bandwidth_bound(case),
              roofline.host_bound(case), roofline.throttled(case)]  # fmt: skip
    return [top, *(gate(top, leaf) for leaf in leaves)]


def _interference(case: Case) -> Check:
    """ITL p99 / p50, where at least one step in ten carries prefill tokens besides decodes."""
    frame = Frame(
        "4.interference", "Prefill interference", "4",
        ("itl_p50", "itl_p99", "step_tokens_p90"), ("running_mean",), "p99 / p50",
        (levers.SMALLER_CHUNK,), ("lowering max_num_seqs: one prefill stalls them all alike",),
    )  # fmt: skip
    mixed = (case.s.value("step_tokens_p90") or 0.0) / max(1.0, case.running())
    p50, p99 = case.s.value("itl_p50"), case.s.value("itl_p99")
    return frame.judge(
        case, lambda: p99 / p50 if p99 is not None and p50 else 0.0,
        case.t("itl_ratio_warning"), case.t("itl_ratio_critical"),
        when=mixed >= case.t("mixed_step_ratio"),
        says=lambda ratio: f"ITL p99 is {ratio:.1f} × p50; p90 step holds {mixed:.1f} × "
        "the running requests' tokens",
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
