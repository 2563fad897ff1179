"""Nodes 0 and 1: can the numbers be trusted, and does the engine move."""

from __future__ import annotations

import math
from dataclasses import replace

from tuner.diagnosis import levers
from tuner.diagnosis.collect_replicas import SILENT
from tuner.diagnosis.collect_trends import OLDEST_START, STARTED_ANEW
from tuner.diagnosis.context import Case, Check, Frame
from tuner.diagnosis.model import State
from tuner.units import count_text

TRUST = Frame("0", "Trust")

PARTS = ("queue", "prefill", "inference")
"""Parts of e2e, in most engines observed with it when a request finishes."""

LIVE = {"sglang": ("queue", "prefill")}
"""By dialect: parts observed as they happen, so of other requests than those that finished."""


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
        return _with_value(_distrust(case, why, "see why scrapes fail"), status.age_s, limit_s)
    if case.s.value("restart"):
        return _distrust(case, "the engine restarted inside the window",
                         "wait until the window lies after the restart", State.WARNING)  # fmt: skip
    if why := implausible(case):
        return _distrust(case, f"implausible latencies: {why}",
                         "update the engine: requests that ended early spoil its sums")  # fmt: skip
    if len(case.s.models) > 1:
        why = f"{len(case.s.models)} models mixed: {', '.join(case.s.models)}"
        how = f"look at one of them: --label model_name={case.s.models[0]}"
        return _distrust(case, why, how, State.WARNING)
    if down := [(name, why) for name, why in status.targets if why]:
        return _some_down(case, down)
    if anew := sorted(case.s.of(STARTED_ANEW)):
        return _some_anew(case, anew)
    said = {
        "unserved": "fresh and up; no request yet: the engine tells its figures from the first on",
        "traffic": "fresh, up, plausible",
        "no_traffic": "fresh and up; no traffic in the window",
        "unknown": "fresh and up, but neither running nor waiting is exported",
    }["unserved" if case.unserved else case.traffic]
    node = TRUST.blank(case, State.OK, said)
    return _with_value(Check(node), status.age_s, limit_s)


def _some_down(case: Case, down: list[tuple[str, str]]) -> Check:
    """Some replicas answer and are judged; that others do not is told and bars nothing."""
    names = "; ".join(f"{name}: {why}" for name, why in down)
    said = f"{len(down)} of {len(case.s.status.targets)} targets give no metrics ({names})"
    node = TRUST.blank(case, State.WARNING, f"{said}; what follows is of the others")
    return Check(replace(node, how_to_get="start what is down, or take it out of the scrapes"))


def _some_anew(case: Case, names: list[str]) -> Check:
    """A replica that has just come, or come back, leaves those that run on to be judged."""
    said = f"{', '.join(names)} started inside the window; what it counted before is not known"
    node = TRUST.blank(case, State.WARNING, said)
    return Check(replace(node, how_to_get="wait until the window lies after the start"))


def _with_value(check: Check, value: float | None, threshold: float) -> Check:
    node = replace(check.node, value=value, threshold=threshold, unit="s", comparison=">")
    return Check(node, check.exact)


def _distrust(case: Case, why: str, how: str, state: State = State.CRITICAL) -> Check:
    return Check(replace(TRUST.blank(case, state, why), missing=("trust",), how_to_get=how))


def implausible(case: Case) -> str:
    """What cannot be in the mean latencies, in words; "" where all of them can.

    A part is none of less than nothing, and no more than the whole. TTFT is observed as it happens,
    beside e2e of other requests: none can have taken longer than the process has run.
    """
    live = ("ttft", *LIVE.get(case.s.dialect, ()))
    means = {name: case.s.value(name) for name in (*PARTS, *live, "e2e")}
    seen = {name: mean for name, mean in means.items() if mean is not None}
    for name, mean in seen.items():
        if mean < 0:
            return f"{name} is {mean:.3g} s on average"
    ran_s = _process_s(case)
    for name in live:
        if ran_s is not None and seen.get(name, 0.0) > ran_s:
            return f"{name} is {seen[name]:.3g} s on average; the process has run for {ran_s:.0f} s"
    return _beyond(case, {name: seen[name] for name in PARTS if name in seen and name not in live},
                   seen.get("e2e"))  # fmt: skip


def _beyond(case: Case, parts: dict[str, float], e2e_s: float | None) -> str:
    """Which part, or queue and prefill together, is more than the whole."""
    if "queue" in parts and "prefill" in parts:
        parts = {**parts, "queue + prefill": parts["queue"] + parts["prefill"]}
    most = case.t("plausible_ratio")
    for name, mean in parts.items():
        if e2e_s and mean > most * e2e_s:
            return f"{name} is {mean / e2e_s:.2f} × e2e; it can only be 0 to {most:g}"
    return ""


def _process_s(case: Case) -> float | None:
    """For how long the engine's oldest process can have run, its clock and ours being a window
    apart at most; None where it does not tell."""
    oldest_s = case.s.value(OLDEST_START)
    start_s = case.s.status.process_start_s if oldest_s is None else oldest_s
    return None if start_s is None else max(0.0, case.s.at_s - start_s) + case.s.window_s


def stall(case: Case) -> Check:
    """Node 1: requests are there and nothing moves.

    One look may meet a request that has just come: what counts is for how long any were there, by
    the window's scrapes.
    """
    frame = Frame("1", "Stall", uses=("running", "waiting", "generated"), unit="tokens",
                  levers=(levers.UNBLOCK, levers.SERVER_LOG))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    generated = case.s.value("generated") or 0.0
    came = f"{count_text(round(generated), 'token')} came in {case.s.window_s:.0f} s"
    if generated:
        return _hung(case, frame) or _answer(case, frame, State.OK, came)
    silent = replace(frame, uses=(*frame.uses, "prompted", "running_share", "waiting_share"))
    if (unread := silent.unread(case)) is not None:
        return unread
    running, waiting = case.s.value("running") or 0.0, case.s.value("waiting") or 0.0
    if case.s.value("prompted") or not (running or waiting):
        return _answer(case, silent, State.OK, came)
    seen_s = min(case.s.window_s, _watched_s(case))
    if seen_s < case.t("stall_warning_s"):
        why = f"no token came, but {seen_s:.0f} s is too short to call it a stall"
        return silent.cant_tell(case, why, ("a longer window",), "watch longer: --watch-for 60s")
    there = max(case.s.value(f"{name}_share") or 0.0 for name in ("running", "waiting"))
    state, said = _silence(case, running, waiting, there * seen_s)
    return _answer(case, silent, state, said)


def _hung(case: Case, frame: Frame) -> Check | None:
    """The replica that runs requests and gives no token while others do; None without one."""
    seen_s = min(case.s.window_s, _watched_s(case))
    silent_s = {name: share * seen_s for name, share in case.s.of(SILENT).items()}
    replica = max(silent_s, key=lambda name: silent_s[name], default="")
    there_s = silent_s.get(replica, 0.0)
    if there_s < case.t("stall_warning_s"):
        return None
    state = State.CRITICAL if there_s >= case.t("stall_s") else State.WARNING
    said = f"{replica} runs requests, but gave no token in {there_s:.0f} s; others do"
    check = _answer(case, replace(frame, also=(SILENT, "tokens_by_replica")), state, said)
    return replace(check, node=replace(check.node, value=0.0))


def _watched_s(case: Case) -> float:
    """Without a gap; the last scrape may be a little ago."""
    status = case.s.status
    return math.inf if status.watched_s is None else status.watched_s + status.scrape_interval_s / 2


def _silence(case: Case, running: float, waiting: float, there_s: float) -> tuple[State, str]:
    """What no token means while requests have been there for there_s."""
    if there_s < case.t("stall_warning_s"):
        return State.OK, f"no token came in the {there_s:.0f} s that requests were there"
    long_enough = there_s >= case.t("stall_s")
    if running > 0 and not long_enough and case.s["step_tokens"].ok:
        said = f"no token came in {there_s:.0f} s, but steps were made: prompts are read"
        return State.OK, said
    state = State.CRITICAL if long_enough else State.WARNING
    if running > 0:
        return state, f"{running:.0f} run, but no token came in {there_s:.0f} s"
    deferred = case.s.of("waiting_by").get("deferred", 0.0)
    larger = "perhaps one of them is larger than the KV pool"
    why = "all deferred" if deferred >= waiting else larger
    return state, f"{waiting:.0f} wait, none runs and no token came in {there_s:.0f} s: {why}"


def _answer(case: Case, frame: Frame, state: State, said: str) -> Check:
    node = replace(
        frame.blank(case, state, said), value=case.s.value("generated"), threshold=0.0,
        comparison="≤", levers=frame.levers if state.firing else (),
    )  # fmt: skip
    return Check(node)
