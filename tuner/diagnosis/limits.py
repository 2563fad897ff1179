"""Which limit holds requests back: counted per step where the engine does, else inferred.

Leaves 3a.*. Invariant: where `slotune:step_binding_limit` exists nothing is inferred from averages.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis import levers, roofline
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import Lever, State
from tuner.diagnosis.registry import how_to_get
from tuner.diagnosis.slo_node import judge_latency
from tuner.diagnosis.spread import spread
from tuner.units import count_text

REASONS = {
    "3a.kv": "kv_pressure",
    "3a.seq_cap": "seq_cap",
    "3a.token_budget": "token_budget",
    "3a.deferred": "deferred",
}
_NO_SEQS = ("raising max_num_seqs: requests wait for KV blocks, not for a place in the batch",)
_TITLES: dict[str, tuple[str, tuple[Lever, ...], tuple[str, ...]]] = {
    "3a.kv": (
        "KV-bound",
        (levers.MORE_KV, levers.FP8_KV, levers.SHORTER_CONTEXT, levers.MORE_REPLICAS),
        _NO_SEQS,
    ),
    "3a.seq_cap": ("Sequence-cap-bound", (levers.MORE_SEQS,), ("more KV: blocks are free",)),
    "3a.token_budget": (
        "Token-budget-bound",
        (levers.LARGER_CHUNK,),
        ("raising max_num_seqs: the step's tokens are used up",),
    ),
    "3a.deferred": ("Deferred", (levers.DEFERRED,), ()),
}


def _frame(case: Case, key: str, uses: tuple[str, ...], unit: str, *, exact: bool) -> Frame:
    title, acts, not_help = _TITLES[key]
    if key == "3a.kv" and not _long_requests(case):
        acts = tuple(act for act in acts if act is not levers.SHORTER_CONTEXT)
    if key == "3a.token_budget":
        acts, more = _larger_chunk(case)
        not_help = (*not_help, *more)
    return Frame(key, title, "3a", uses, unit=unit, levers=acts, will_not_help=not_help,
                 exact=exact)  # fmt: skip


def _long_requests(case: Case) -> bool:
    """Whether some requests are long beside the others; True where prompts' lengths are not told:
    the lever then says its own condition."""
    prompts = spread(case, "prompt_tokens")
    return not prompts.value or prompts.open or prompts.value >= case.t("unequal_prompts")


def _larger_chunk(case: Case) -> tuple[tuple[Lever, ...], tuple[str, ...]]:
    """(levers, what will not help) of a step whose tokens are used up: larger steps lengthen ITL,
    so that they are a lever only while it has room."""
    clauses = case.clauses_for("itl", "tpot")
    if not clauses:
        cost = f"{levers.LARGER_CHUNK.cost}; no SLO tells whether ITL has room for it"
        return (replace(levers.LARGER_CHUNK, cost=cost),), ()
    if judge_latency(case, Frame("4", "TPOT / ITL"), clauses, "tpot").firing:
        return (levers.MORE_REPLICAS,), ("raising chunk_size: ITL or TPOT misses its SLO already",)
    return (levers.LARGER_CHUNK,), ()


def leaves(case: Case) -> list[Check]:
    """The four limits. Exactly measured ones fire for the largest share only."""
    steps = case.s.of("binding")
    if steps and sum(steps.values()) > 0:
        return [_counted(case, key, steps) for key in REASONS]
    return [_kv(case), _seq_cap(case), _token_budget(case), _deferred(case)]


def compute(case: Case, found: list[Check]) -> tuple[list[Check], Check]:
    """3a.compute: the step's tokens are used up, but a larger step would only take longer.

    Gives the leaves back with the token budget's explained by it.
    """
    frame = Frame(
        "3a.compute", "Compute-bound queue", "3a", ("flops",), ("peak_flops",), "MFU",
        (levers.SCALE_OR_SHED, levers.FASTER_DEVICE, levers.LESS_COMPUTE),
        ("raising chunk_size: a step of twice the tokens takes twice as long",),
    )  # fmt: skip
    budget = next(check for check in found if check.key == "3a.token_budget")
    if not budget.firing:
        return found, frame.not_applicable(case, "the step's tokens are not used up")
    share = roofline.arithmetic_bound(case)
    if share is None:
        return found, roofline.compute_bound(case, frame)
    said = f"{budget.node.summary}, but arithmetic is what they wait for: see Compute-bound queue"
    calm = Check(replace(budget.node, state=State.OK, levers=(), summary=said), budget.exact)
    leaf = frame.judge(
        case, lambda: share, case.t("mfu_compute_bound"), evidence=roofline.evidence(case),
        says=lambda v: f"prompts wait for arithmetic: {roofline.of_peak(case, v, 'FLOP/s')}",
    )  # fmt: skip
    return [calm if check.key == budget.key else check for check in found], leaf


def _counted(case: Case, key: str, steps: dict[str, float]) -> Check:
    total = sum(steps.values())
    shares = {key: steps.get(reason, 0.0) / total for key, reason in REASONS.items()}
    frame = _frame(case, key, ("binding",), "share of steps", exact=True)
    check = frame.judge(
        case, lambda: shares[key],
        case.t("binding_share_warning"), case.t("binding_share_critical"),
        says=lambda share: f"held back {share:.0%} of {count_text(round(total), 'step')}",
        when=shares[key] == max(shares.values()),
    )  # fmt: skip
    return replace(check, node=replace(check.node, samples=round(total), counted="steps"))


def _kv(case: Case) -> Check:
    frame = _frame(case, "3a.kv", ("kv_usage", "waiting", "preemptions"), "share", exact=False)
    preempted = case.s.value("preemptions") or 0.0
    full = case.kv_usage() >= case.t("kv_full") and case.waiting() >= case.t("waiting_some")
    enough = preempted >= case.t("preemption_events")
    check = frame.judge(
        case, case.kv_usage, 0.0, case.t("kv_full"), when=full or enough,
        says=lambda kv: f"KV {kv:.0%} used, {case.waiting():.1f} waiting, "
        f"{count_text(round(preempted), 'preemption')}",
    )  # fmt: skip
    return replace(check, node=replace(check.node, threshold=case.t("kv_full")))


def _seq_cap(case: Case) -> Check:
    uses = ("running", "kv_usage", "waiting")
    frame = _frame(case, "3a.seq_cap", uses, "of the cap", exact=False)
    cap = case.cap()
    if (unread := frame.unread(case)) is not None:
        return unread
    if not cap:
        return _as_at_a_cap(case, frame) or frame.unset(case, "max_num_seqs")
    room = case.kv_usage() < case.t("kv_free_enough")
    running = max(case.running(), min(cap, _at_wait(case) or 0.0))
    return frame.judge(
        case, lambda: running / cap, case.t("at_cap"), 1.0,
        when=room and case.waiting() >= case.t("waiting_some"),
        says=lambda share: f"{case.of_cap(running, cap)}, "
        f"{case.waiting():.1f} wait, KV {case.kv_usage():.0%}",
    )  # fmt: skip


def _at_wait(case: Case) -> float | None:
    """How many run while others wait, with those that the step has just ended: vLLM tells of a step
    when they have left and nobody has yet come in their place. Of few, to the nearest whole one."""
    running, steps = case.s.value("running_at_wait"), case.s["step_tokens"].samples
    ended = (case.s.value("finished") or 0.0) / steps * case.replicas if steps else 0.0
    return None if running is None else max(running + ended, float(round(running + ended)))


def _as_at_a_cap(case: Case, frame: Frame) -> Check | None:
    """A cap that is not told, by how it looks: whenever others wait, as many run as ever,
    they decode, and the KV pool has room for two more prompts. None where it does not look so."""
    running, most = _at_wait(case), case.s.value("running_most")
    prefill, inference = case.s.value("prefill"), case.s.value("inference")
    prompt, pool = case.s.value("prompt_tokens"), case.pool_tokens()
    if not (running and most and inference and prompt and pool) or prefill is None:
        return None
    decode = case.t("decode_share") <= 1.0 - prefill / inference
    room = case.kv_usage() < case.t("kv_free_enough") and 2 * prompt <= pool * (1 - case.kv_usage())
    steady = running >= case.t("at_cap") * most and case.waiting() >= case.t("waiting_some")
    if not (decode and room and steady):
        return None
    each, of_each = most / case.replicas, " each" if case.replicas > 1 else ""
    check = frame.judge(
        case, lambda: min(1.0, running / most), case.t("at_cap"),
        says=lambda _: f"{most:.0f} run whenever others wait, {case.waiting():.1f} on average, "
        f"KV {case.kv_usage():.0%}: as at a cap of {each:.0f}{of_each}, which is not told",
    )  # fmt: skip
    how = f"to be sure: --set max_num_seqs={each:.0f}, if it is"
    return replace(check, node=replace(check.node, how_to_get=how), guess=True)


def _token_budget(case: Case) -> Check:
    uses = ("step_tokens", "waiting")
    frame = _frame(case, "3a.token_budget", uses, "of the budget", exact=False)
    budget = case.s.number("chunk_size")
    if (unread := frame.unread(case)) is not None:
        return unread
    if not budget:
        return frame.unset(case, "chunk_size")
    tokens = _tokens_per_step(case, budget)
    return frame.judge(
        case, lambda: tokens / budget, case.t("at_budget"),
        when=case.waiting() >= case.t("waiting_some"),
        says=lambda share: f"{tokens:.0f} of {budget:.0f} tokens per step, "
        f"{case.waiting():.1f} wait",
    )  # fmt: skip


def _tokens_per_step(case: Case, budget: float) -> float:
    """Mean tokens of a step, at least.

    vLLM counts a prompt in the step that ends it and no step that gives no token. Where prompts are
    longer than the budget, as many full steps as the tokens fill may have gone uncounted.
    """
    mean, prompt = case.s.value("step_tokens") or 0.0, case.s.value("prompt_tokens") or 0.0
    return mean / (1.0 + mean / budget) if prompt > budget else mean


def _deferred(case: Case) -> Check:
    frame = _frame(case, "3a.deferred", ("waiting_by",), "share of waiting", exact=True)
    by = case.s.of("waiting_by")
    if "deferred" not in by:
        why, missing = "waiting requests are not split by reason", "num_requests_waiting_by_reason"
        return frame.cant_tell(case, why, (missing,), how_to_get("waiting_by"))
    total = sum(by.values())
    return frame.judge(
        case, lambda: by["deferred"] / total if total else 0.0, case.t("deferred_share"),
        says=lambda share: f"{by['deferred']:.0f} of {total:.0f} waiting are deferred",
    )  # fmt: skip


def busy_share(case: Case) -> float | None:
    busy, idle = case.s.value("busy_s"), case.s.value("idle_s")
    if busy is not None and idle is not None and busy + idle > 0:
        return busy / (busy + idle)
    return case.s.value("device_active")


def no_limit(case: Case, found: list[Check]) -> Check:
    """3a.other: a queue that no limit explains. It names only what the figures show."""
    frame = Frame("3a.other", "Queue below every limit", "3a", ("waiting", "finished"),
                  ("prompt_tokens_p50", "prompt_tokens_p99"), "requests", exact=False)  # fmt: skip
    unknown = [check.node for check in found if check.node.state is State.CANT_TELL]
    if any(check.firing for check in found):
        return frame.not_applicable(case, "a limit explains the queue")
    if unknown:
        names = tuple(name for node in unknown for name in node.missing)
        return frame.cant_tell(case, "not every limit could be checked", names,
                               unknown[0].how_to_get)  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    least = case.t("waiting_some")
    if case.waiting() < least:
        return frame.judge(case, case.waiting, least, says=lambda n: f"{n:.1f} wait")
    why, acts = _behind(case)
    if not acts:
        said = f"{case.waiting():.1f} wait although no limit is reached, {why}"
        return frame.cant_tell(case, said, ("what the queue waits for",),
                               "watch longer, or read the server's log")  # fmt: skip
    return replace(frame, levers=acts).judge(
        case, case.waiting, least,
        says=lambda n: f"{n:.1f} wait although no limit is reached: {why}",
    )  # fmt: skip


def _behind(case: Case) -> tuple[str, tuple[Lever, ...]]:
    """What the figures say a queue below every limit waits for, and what to turn."""
    if (case.s.value("finished") or 0.0) < case.t("likely_requests"):
        return "and too few requests finished to see why", ()
    reasons: list[tuple[str, Lever]] = []
    ratio = spread(case, "prompt_tokens").value
    if ratio >= case.t("unequal_prompts"):
        reasons.append((f"a long prompt ahead (p99 is {ratio:.1f} × p50)", levers.LONG_POOL))
    if case.replicas >= 2:
        reasons.append((f"{case.replicas} replicas, perhaps unevenly loaded", levers.ROUTER))
    if (steps := _steps_waited(case)) is not None and steps <= case.t("steps_waited"):
        reasons.append((f"the step under way ({steps:.1f} steps waited)", levers.SHORTER_STEPS))
    if not reasons:
        return "prompts are about equal and there is one replica", ()
    return " or ".join(why for why, _ in reasons), tuple(lever for _, lever in reasons)


def _steps_waited(case: Case) -> float | None:
    """Mean queue time in mean steps, where the engine times its steps and prefills fill them."""
    steps, queue = sum(case.s.of("binding").values()), case.s.value("queue")
    spent_s, tokens = sum(case.s.of("phase_s").values()), case.s.value("step_tokens_p90")
    if not steps or not spent_s or queue is None or tokens is None:
        return None
    mixed = tokens >= case.t("mixed_step_ratio") * max(1.0, case.running_each())
    return queue / (spent_s / steps) if mixed else None
