"""Node 2: how requests ended. Errors, clients that gave up, refusals, answers that were cut off."""

from __future__ import annotations

from dataclasses import replace

from storage.sources.base import Outcome
from tuner.diagnosis import levers
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import Lever, State
from tuner.units import count_text


def nodes(case: Case) -> list[Check]:
    """Node 2 and its leaves: shares of the requests that ended in the window."""
    aborts = _ended_by(case, "aborts", "Aborts", ("abort",), "abort", levers.CLIENTS)
    counted = bool(case.s.of("finished_by"))
    leaves = [
        _ended_by(case, "errors", "Errors", ("error",), "error", levers.SERVER_LOG),
        aborts if counted else _aborts_alone(case) or aborts,
        _rejections(case),
        _cut_off(case, _ended_by(case, "length", "Cut off by max_tokens", ("length", "repetition"),
                                 "length", levers.CLIENTS)),
    ]  # fmt: skip
    return [_worst(case, Frame("2", "Errors"), leaves), *leaves]


def _ended_by(
    case: Case, key: str, title: str, reasons: tuple[str, ...], threshold: str, lever: Lever
) -> Check:
    """The leaf that holds the share of these reasons against THRESHOLD_share_warning."""
    frame = Frame(f"2.{key}", title, "2", ("finished_by",), unit="share", levers=(lever,))
    by = case.s.of("finished_by")
    if not by:
        return frame.cant_tell(
            case, "finished requests are not counted by their reason",
            ("request_success_total{finished_reason}",),
            "use an engine that exports finished_reason, or a proxy's status codes",
        )  # fmt: skip
    total = sum(by.values())
    if total == 0:
        return frame.not_applicable(case, "no request ended in the window")
    count, ended = sum(by.get(reason, 0.0) for reason in reasons), round(total)
    check = frame.judge(
        case, lambda: count / total, case.t(f"{threshold}_share_warning"),
        case.t("error_share_critical") if key == "errors" else None,
        says=lambda share: f"{share:.1%} ({count:.0f} of {count_text(ended, 'request')})",
    )  # fmt: skip
    return replace(check, node=replace(check.node, samples=ended, counted="requests"))


def _rejections(case: Case) -> Check:
    frame = Frame("2.rejections", "Rejections", "2", ("rejections",), unit="requests",
                  levers=(levers.ROOM_OR_REFUSE, levers.SCALE_OR_SHED))  # fmt: skip
    return frame.judge(
        case, lambda: case.s.value("rejections") or 0.0, case.t("rejections_warning"),
        says=lambda count: f"{count:.0f} refused with 503",
    )  # fmt: skip


def _aborts_alone(case: Case) -> Check | None:
    """2.aborts of an engine that counts them and no other reason (SGLang); None where it counts
    none. Whether they are among the finished ones is not told: the share may be greater."""
    aborted, finished = case.s.value("aborted"), case.s.value("finished")
    if aborted is None or finished is None:
        return None
    frame = Frame("2.aborts", "Aborts", "2", ("aborted", "finished"), unit="share",
                  levers=(levers.CLIENTS,))  # fmt: skip
    if not aborted + finished:
        return frame.not_applicable(case, "no request ended in the window")
    return frame.judge(
        case, lambda: aborted / (aborted + finished), case.t("abort_share_warning"),
        says=lambda share: f"{share:.1%} or more ({aborted:.0f} aborted, {finished:.0f} finished)",
    )  # fmt: skip


def _cut_off(case: Case, check: Check) -> Check:
    """2.length fires only where answers end by themselves too, or nobody asked for the limit.

    Where none ends by itself and all reach their own max_tokens, as under a benchmark's fixed
    output lengths, the limit is what was asked for and not a fault. Means are of all that ended:
    whoever gave up took a part, or nothing, of what was asked for.
    """
    if not check.firing:
        return check
    by = case.s.of("finished_by")
    asked, answered = case.s["asked_tokens"], case.s.value("answer_tokens")
    if by.get("stop", 0.0) > case.t("own_stop_share") * sum(by.values()):
        return check
    if asked.outcome is Outcome.NO_TRAFFIC:
        said = f"{check.node.summary}, and no client set max_tokens: max_model_len cuts them off"
        return replace(check, node=replace(check.node, summary=said))
    if asked.value is None or answered is None:
        node = replace(
            check.node, state=State.CANT_TELL, levers=(), missing=("request_params_max_tokens",),
            summary="no answer ends by itself; whether clients want that length is not exported",
            how_to_get="compare the clients' max_tokens with the lengths they expect",
        )  # fmt: skip
        return Check(node)
    cut_off = (by.get("length", 0.0) + by.get("repetition", 0.0)) / sum(by.values())
    if answered < case.t("at_own_limit") * asked.value * cut_off:
        return check
    said = f"as asked: {check.node.summary} reach their own max_tokens (mean {asked.value:.0f})"
    return Check(replace(check.node, state=State.OK, levers=(), summary=said))


def _worst(case: Case, frame: Frame, leaves: list[Check]) -> Check:
    """The parent, whose state is the worst of its leaves' and whose sentence is that leaf's."""
    order = (State.CRITICAL, State.WARNING, State.OK, State.CANT_TELL, State.NOT_APPLICABLE)
    worst = min((leaf.node for leaf in leaves), key=lambda node: order.index(node.state))
    unknown = sum(leaf.node.state is State.CANT_TELL for leaf in leaves)
    said = f"no leaf fires; {unknown} cannot be told" if unknown else "no leaf fires"
    if worst.firing:
        said = f"{worst.title}: {worst.summary}"
    elif worst.state is State.CANT_TELL:
        said = worst.summary
    node = replace(
        frame.blank(case, worst.state, said), missing=worst.missing, how_to_get=worst.how_to_get,
        samples=worst.samples, counted=worst.counted,
    )  # fmt: skip
    return Check(node)
