"""Nodes 0 to 2: can the numbers be trusted, does the engine move, do requests fail."""

from __future__ import annotations

from dataclasses import replace

from storage.sources.base import Outcome
from tuner.diagnosis import levers
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import Lever, State

TRUST = Frame("0", "Trust")


def trust(case: Case) -> Check:
    """Node 0. A firing trust node with `missing` set bars every judgement after it."""
    status, t = case.s.status, case.t
    limit_s = t("age_intervals") * status.scrape_interval_s
    if not status.up:
        return _distrust(case, f"the target does not answer: {status.reason or 'no sample yet'}",
                         "start the server, or correct the URL")  # fmt: skip
    if status.age_s is None or status.age_s > limit_s:
        age = "has no time" if status.age_s is None else f"is {status.age_s:.0f} s old"
        why = f"the newest sample {age}, more than {limit_s:g} s: stale"
        return replace_value(_distrust(case, why, "see why scrapes fail"), status.age_s, limit_s)
    if case.s.value("restart"):
        return _distrust(case, "the engine restarted inside the window",
                         "wait until the window lies after the restart", State.WARNING)  # fmt: skip
    if (ratio := implausible(case)) is not None:
        why = f"queue + prefill is {ratio:.2f} × e2e; it can only be 0 to {t('plausible_ratio'):g}"
        return _distrust(case, f"implausible latencies: {why}",
                         "update the engine: requests that ended early spoil its sums")  # fmt: skip
    if len(case.s.models) > 1:
        names = ", ".join(case.s.models)
        node = TRUST.blank(case, State.WARNING, f"{len(case.s.models)} models mixed: {names}")
        return Check(replace(node, how_to_get="restrict the source to one model_name"))
    said = {
        "traffic": "fresh, up, plausible",
        "no_traffic": "fresh and up; no traffic in the window",
        "unknown": "fresh and up, but neither running nor waiting is exported",
    }[case.traffic]
    node = TRUST.blank(case, State.OK, said)
    return replace_value(Check(node), status.age_s, limit_s)


def replace_value(check: Check, value: float | None, threshold: float) -> Check:
    node = replace(check.node, value=value, threshold=threshold, unit="s", comparison=">")
    return Check(node, check.exact)


def _distrust(case: Case, why: str, how: str, state: State = State.CRITICAL) -> Check:
    return Check(replace(TRUST.blank(case, state, why), missing=("trust",), how_to_get=how))


def implausible(case: Case) -> float | None:
    """(queue + prefill) / e2e where it lies outside what is possible, else None."""
    parts = [case.s.value(name) for name in ("queue", "prefill", "e2e")]
    queue, prefill, e2e = parts
    if queue is None or prefill is None or e2e is None:
        return None
    if min(queue, prefill, e2e) < 0:
        return (queue + prefill) / e2e if e2e else float("-inf")
    if e2e == 0:
        return None
    ratio = (queue + prefill) / e2e
    return ratio if ratio > case.t("plausible_ratio") else None


def stall(case: Case) -> Check:
    """Node 1: requests are there and nothing moves."""
    frame = Frame("1", "Stall", uses=("running", "waiting", "generated"), unit="tokens",
                  levers=(levers.UNBLOCK, levers.SERVER_LOG))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    running, waiting = case.s.value("running") or 0.0, case.s.value("waiting") or 0.0
    generated = case.s.value("generated") or 0.0
    prompted = case.s.value("prompted") or 0.0
    long_enough = case.s.window_s >= case.t("stall_s")
    silent = generated == 0 and prompted == 0
    stepped = case.s["step_tokens"].ok
    if waiting > 0 and running == 0 and silent:
        deferred = case.s.of("waiting_by").get("deferred", 0.0)
        why = "all deferred" if deferred >= waiting else "perhaps one larger than the KV pool"
        state = State.CRITICAL
        said = f"{waiting:.0f} wait, none runs and no token came: {why}"
    elif running > 0 and silent and case.s.window_s < case.t("stall_warning_s"):
        why = f"no token came, but {case.s.window_s:.0f} s is too short to call it a stall"
        return frame.cant_tell(case, why, ("a longer window",), "watch longer: --watch-for 60s")
    elif running > 0 and silent and stepped and not long_enough:
        state = State.OK
        said = f"no token came in {case.s.window_s:.0f} s, but steps were made: prompts are read"
    elif running > 0 and silent:
        state = State.CRITICAL if long_enough else State.WARNING
        said = f"{running:.0f} run, but no token came in {case.s.window_s:.0f} s"
    else:
        state, said = State.OK, f"{generated:.0f} tokens came in {case.s.window_s:.0f} s"
    node = replace(frame.blank(case, state, said), value=generated, threshold=0.0, comparison="≤",
                   levers=frame.levers if state.firing else ())  # fmt: skip
    return Check(node)


def errors(case: Case) -> list[Check]:
    """Node 2 and its leaves: shares of the requests that ended in the window."""
    by = case.s.of("finished_by")
    total = sum(by.values())
    rejected = case.s.value("rejections") or 0.0
    t = case.t

    def leaf(key: str, title: str, reasons: tuple[str, ...], name: str, *acts: Lever) -> Check:
        frame = Frame(f"2.{key}", title, "2", ("finished_by",), unit="share", levers=acts)
        if "finished_by" not in case.s.breakdowns or not by:
            return frame.cant_tell(
                case, "finished requests are not counted by their reason",
                ("request_success_total{finished_reason}",),
                "use an engine that exports finished_reason, or a proxy's status codes",
            )  # fmt: skip
        if total == 0:
            return frame.not_applicable(case, "no request ended in the window")
        count = sum(by.get(reason, 0.0) for reason in reasons)
        critical = t("error_share_critical") if key == "errors" else None
        check = frame.judge(
            case, lambda: count / total, t(f"{name}_share_warning"), critical,
            says=lambda share: f"{share:.1%} ({count:.0f} of {total:.0f} requests)",
        )  # fmt: skip
        return Check(replace(check.node, samples=round(total), counted="requests"), check.exact)

    leaves = [
        leaf("errors", "Errors", ("error",), "error", levers.SERVER_LOG),
        leaf("aborts", "Aborts", ("abort",), "abort", levers.CLIENTS),
        Frame("2.rejections", "Rejections", "2", ("rejections",), unit="requests",
              levers=(levers.ROOM_OR_REFUSE, levers.SCALE_OR_SHED)).judge(
            case, lambda: rejected, t("rejections_warning"),
            says=lambda count: f"{count:.0f} refused with 503",
        ),
        _cut_off(case, leaf("length", "Cut off by max_tokens", ("length", "repetition"), "length",
                            levers.CLIENTS)),
    ]  # fmt: skip
    return [roll_up(case, Frame("2", "Errors"), leaves, "no leaf fires"), *leaves]


def _cut_off(case: Case, check: Check) -> Check:
    """2.length fires only where answers end by themselves too, or nobody asked for the limit.

    Where none ends by itself and all reach their own max_tokens, as under a benchmark's fixed
    output lengths, the limit is what was asked for and not a fault.
    """
    if not check.firing:
        return check
    by = case.s.of("finished_by")
    asked, answered = case.s["asked_tokens"], case.s.value("answer_tokens")
    if by.get("stop", 0.0) > case.t("own_stop_share") * sum(by.values()):
        return check
    if asked.outcome is Outcome.NO_TRAFFIC:
        said = f"{check.node.summary}, and no client set max_tokens: max_model_len cuts them off"
        return Check(replace(check.node, summary=said), check.exact)
    if asked.value is None or answered is None:
        node = replace(
            check.node, state=State.CANT_TELL, levers=(), missing=("request_params_max_tokens",),
            summary="no answer ends by itself; whether clients want that length is not exported",
            how_to_get="compare the clients' max_tokens with the lengths they expect",
        )  # fmt: skip
        return Check(node)
    if answered < case.t("at_own_limit") * asked.value:
        return check
    said = f"as asked: {check.node.summary} reach their own max_tokens (mean {asked.value:.0f})"
    return Check(replace(check.node, state=State.OK, levers=(), summary=said))


def roll_up(case: Case, frame: Frame, leaves: list[Check], calm: str) -> Check:
    """A parent whose state is the worst of its leaves' and whose sentence is that leaf's."""
    order = (State.CRITICAL, State.WARNING, State.OK, State.CANT_TELL, State.NOT_APPLICABLE)
    worst = min((leaf.node for leaf in leaves), key=lambda node: order.index(node.state))
    said = f"{worst.title}: {worst.summary}" if worst.firing else calm
    if worst.state is State.CANT_TELL:
        said = worst.summary
    node = frame.blank(case, worst.state, said)
    return Check(
        replace(
            node,
            missing=worst.missing,
            how_to_get=worst.how_to_get,
            samples=worst.samples,
            counted=worst.counted,
        )
    )
