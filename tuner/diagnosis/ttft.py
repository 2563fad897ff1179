"""Node 3: TTFT misses its SLO. Splits TTFT into queue, prefill and front end, then names why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tuner.diagnosis import levers, limits, overload, prefix, roofline
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.registry import how_to_get
from tuner.diagnosis.slo_node import gate, judge_latency, seconds
from tuner.diagnosis.spread import BEYOND, spread, value_of
from tuner.units import count_text

NODE = Frame("3", "TTFT", also=("ttft", "queue", "prefill"))


@dataclass(frozen=True, slots=True)
class Split:
    """Mean TTFT in seconds by part, of requests that finished in the window.

    front_end_s is e2e − queue − inference, all of the same requests: TTFT is observed live and the
    parts at finish, so that their difference would count requests still running as front end.
    """

    queue_s: float
    prefill_s: float
    front_end_s: float | None

    @property
    def total_s(self) -> float:
        return self.queue_s + self.prefill_s + (self.front_end_s or 0.0)

    def share(self, part_s: float) -> float:
        return part_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def queue_share(self) -> float:
        both = self.queue_s + self.prefill_s
        return self.queue_s / both if both > 0 else 0.0

    def evidence(self) -> tuple[tuple[str, str], ...]:
        parts = [("queue", self.queue_s), ("prefill", self.prefill_s)]
        if self.front_end_s is not None:
            parts.append(("front end", self.front_end_s))
        return tuple((k, f"{seconds(v)} ({self.share(v):.0%})") for k, v in parts)


def split_of(case: Case) -> Split | None:
    queue, prefill = case.s.value("queue"), case.s.value("prefill")
    if queue is None or prefill is None:
        return None
    e2e, inference = case.s.value("e2e"), case.s.value("inference")
    front = None if e2e is None or inference is None else max(0.0, e2e - queue - inference)
    return Split(queue, prefill, front)


def nodes(case: Case) -> list[Check]:
    """Node 3 with all below it, parents first."""
    split = split_of(case)
    top = judge_latency(case, NODE, case.clauses_for("ttft"), "ttft")
    if split is not None:
        told = (*top.node.evidence, *split.evidence())
        top = replace(top, node=replace(top.node, evidence=told))
    queue, prefill = _queue(case, split), _prefill(case, split)
    queue, prefill = gate(top, queue), gate(top, prefill)
    bound, compute = limits.compute(case, limits.leaves(case))
    bound = [*bound, compute]
    over = overload.overload(case, bound)
    other = limits.no_limit(case, [*bound, over])
    below_queue = [gate(queue, leaf) for leaf in (*bound, over, other)]
    below_prefill = [gate(prefill, leaf) for leaf in _prefill_leaves(case)]
    if prefill.firing and not any(leaf.firing for leaf in below_prefill):
        advised = replace(prefill.node, levers=(levers.FEWER_PROMPT_TOKENS,))
        prefill = replace(prefill, node=advised)
    rest = [gate(top, leaf) for leaf in (_tail(case), _front_end(case, split))]
    return [top, queue, *below_queue, prefill, *below_prefill, *rest, _client(case, top)]


def _rise(case: Case) -> float:
    """By how many requests the queue has risen in the window; 0 while nothing waits.

    Requests still waiting have no queue time yet, so that a rising queue hides from the split.
    """
    rise = case.s.value("waiting_rise") or 0.0
    return (
        rise if case.waiting() >= case.t("waiting_some") and rise >= case.t("waiting_rise") else 0.0
    )


def _queue(case: Case, split: Split | None) -> Check:
    """3a, by the split; and by a rising queue, which the split does not hold yet.

    Beside a slow front end a queue of milliseconds can be most of queue + prefill: it must be the
    same share of the whole TTFT.
    """
    frame = Frame(
        "3a", "Queue-dominated", "3", ("queue", "prefill"), ("waiting", "waiting_rise"), "share"
    )
    rise = _rise(case)
    said = f"{case.waiting():.1f} waiting" + (f", up {rise:.1f} in the window" if rise else "")
    by_gauge = replace(frame, uses=("waiting", "waiting_rise"), exact=False, unit="requests")
    rising = by_gauge.judge(case, lambda: rise, case.t("waiting_rise"), says=lambda _: said)
    if split is None and rise:
        return rising
    of_ttft = split.share(split.queue_s) if split else 0.0
    much = of_ttft >= case.t("queue_share_warning")
    within = "" if much else f" and {of_ttft:.0%} of mean TTFT"
    check = frame.judge(
        case,
        lambda: split.queue_share if split else 0.0,
        case.t("queue_share_warning"),
        case.t("queue_share_critical"),
        when=much,
        says=lambda share: f"queue is {share:.0%} of queue + prefill{within}; {said}",
    )
    return rising if rise and not check.firing else check


def _prefill(case: Case, split: Split | None) -> Check:
    """3b. While the queue rises, requests that finished early make prefill look too large."""
    frame = Frame(
        "3b", "Prefill-dominated", "3", ("queue", "prefill"), ("e2e", "inference"), "share of TTFT"
    )
    rising = _rise(case) > 0
    note = " of requests that finished; the queue still rises" if rising else ""
    return frame.judge(
        case,
        lambda: split.share(split.prefill_s) if split else 0.0,
        case.t("prefill_share_warning"),
        when=not rising,
        says=lambda share: f"prefill is {share:.0%} of mean TTFT{note}",
    )


def _prefill_leaves(case: Case) -> list[Check]:
    return [_long_prompt(case), prefix.cache_off(case), prefix.thrash(case),
            roofline.compute_bound(case), roofline.small_steps(case)]  # fmt: skip


def _long_prompt(case: Case) -> Check:
    frame = Frame(
        "3b.long_prompt", "Prompt longer than the chunk", "3b", ("prompt_tokens",),
        unit="prompt / chunk", levers=(levers.LARGER_CHUNK,),
    )  # fmt: skip
    chunk = case.s.number("chunk_size")
    if (unread := frame.unread(case)) is not None:
        return unread
    if not chunk:
        return frame.unset(case, "chunk_size")
    mean = case.s.value("prompt_tokens") or 0.0
    steps = max(1, math.ceil(mean / chunk))
    return frame.judge(
        case, lambda: mean / chunk, case.t("long_prompt") + 1.0 / chunk,
        case.t("long_prompt_critical"),
        says=lambda ratio: f"mean prompt {mean:.0f} tokens, chunk {chunk:.0f}: "
        f"{count_text(steps, 'step')} per prompt",
    )  # fmt: skip


def _tail(case: Case) -> Check:
    frame = Frame("3c", "Tail only", "3",
                  ("ttft_p50", "ttft_p99", "prompt_tokens_p50", "prompt_tokens_p99"),
                  unit="p99 / p50", levers=(levers.LONG_POOL,))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    usual_s = value_of(case.s["ttft_p50"], case.s["ttft"])
    fine = all(usual_s < clause.bound for clause in case.clauses_for("ttft"))
    ttft, prompts = spread(case, "ttft"), spread(case, "prompt_tokens")
    least = ((ttft, case.t("tail_ratio")), (prompts, case.t("prompt_tail_ratio")))
    unknown = [one.name for one, at in least if one.unknown(at)]
    if fine and unknown and all(one.value >= at or one.open for one, at in least):
        why = f"p99 / p50 of {' and '.join(unknown)} may be any larger than the histogram tells"
        return frame.cant_tell(case, why, tuple(f"{name}_p99" for name in unknown), BEYOND)
    check = frame.judge(
        case, lambda: ttft.value, case.t("tail_ratio"),
        when=fine and prompts.value >= case.t("prompt_tail_ratio"),
        says=lambda ratio: f"TTFT p99 is {ratio:.1f} × p50, prompt length {prompts.value:.1f} ×",
    )  # fmt: skip
    return replace(check, exact=ttft.exact and prompts.exact)


def _front_end(case: Case, split: Split | None) -> Check:
    frame = Frame("3d", "Front-end-dominated", "3", ("queue", "prefill", "e2e", "inference"), (),
                  "share of TTFT", (levers.FRONT_END,))  # fmt: skip
    residual_s = split.front_end_s if split and split.front_end_s is not None else 0.0
    large = residual_s >= case.t("front_end_s")
    return frame.judge(
        case, lambda: split.share(residual_s) if split else 0.0,
        case.t("front_end_least_share" if large else "front_end_share"),
        says=lambda share: f"outside the engine {seconds(residual_s)}, {share:.0%} of mean TTFT",
    )  # fmt: skip


def _load(case: Case) -> str:
    """Of which load the clients' figure is."""
    seen = case.s["client_ttft"]
    return f"{seen.query}, {count_text(seen.samples, 'request')} in {seen.window_s:.0f} s"


def _client(case: Case, top: Check) -> Check:
    """3e: only a client's own figure can show it; a kept run's cross-check has both sides'."""
    frame = Frame("3e", "Server fine, client slow", "3", ("client_ttft", "client_server_ttft"),
                  unit="client / server", levers=(levers.NETWORK,))  # fmt: skip
    if top.firing:
        return frame.not_applicable(case, "the server itself misses the SLO")
    if not case.s.readings.keys() & set(frame.uses):
        how = how_to_get("client_ttft")
        return frame.cant_tell(case, "what clients saw is not known", frame.uses, how)
    if (unread := frame.unread(case)) is not None:
        return unread
    client, server = case.s.value("client_ttft") or 0.0, case.s.value("client_server_ttft") or 0.0
    missed = any(client >= c.bound for c in case.clauses_for("ttft"))
    return frame.judge(
        case, lambda: client / server if server else 0.0, case.t("client_ratio"), when=missed,
        evidence=(("client − server", seconds(client - server)), ("clients", _load(case))),
        says=lambda ratio: f"clients saw {seconds(client)} on average, {ratio:.2f} × the "
        f"server's own {seconds(server)}",
    )  # fmt: skip
