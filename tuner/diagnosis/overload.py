"""3a.overload: the queue keeps growing, nothing that holds it back can be raised, and the device
has no time left.

Invariant: a knob that could still be raised is advised in its place, and what was watched for too
short a time is not called calm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.knobs import KNOBS, obeyed
from tuner.diagnosis import levers
from tuner.diagnosis.context import LOOK_FOR_IT, Case, Check, Frame
from tuner.diagnosis.limits import busy_share
from tuner.diagnosis.model import State

RAISED_BY = {
    "3a.kv": "gpu_memory_utilization",
    "3a.seq_cap": "max_num_seqs",
    "3a.token_budget": "chunk_size",
}
"""Limit → the knob that raises it, or the one that the server obeys in its place."""

_HIGH = "_high"
_NO_BUSY = "the device's busy share"


@dataclass(frozen=True, slots=True)
class Held:
    """What holds requests back. room: limits whose knob can be raised, in words; at_highest: how
    many have theirs at its highest; untold: what is not known of the others that hold; unchecked:
    what the limits lack that could not be checked, with how to get it."""

    room: tuple[str, ...]
    at_highest: int
    untold: tuple[str, ...]
    unchecked: tuple[str, ...]
    how: str


def overload(case: Case, found: list[Check]) -> Check:
    """found: the limits, as judged before."""
    frame = Frame(
        "3a.overload", "Overload", "3a", ("waiting_growing_s",),
        ("busy_s", "idle_s", "running_share"), "s",
        (levers.SCALE_OR_SHED,), ("turning a knob that is at its maximum",),
    )  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    grew, least_s = case.s["waiting_growing_s"], case.t("overload_growth_s")
    grown_s = grew.value or 0.0
    said = f"the queue has grown for {grown_s:.0f} s"
    too_short = grown_s < least_s and grew.bound == "≥" and grew.window_s < 2 * least_s
    if grown_s < least_s and not too_short:
        return frame.judge(case, lambda: grown_s, least_s, says=lambda _: said)
    held, (busy, device) = _held(case, found), _saturation(case)
    idle = busy is not None and busy < case.t("saturated_busy")
    if (calm := _calm(held, device if idle else "")) is not None:
        return frame.judge(
            case, lambda: grown_s, least_s, when=False, says=lambda _: f"{said}; {calm}"
        )
    lacking = held.untold or (() if held.at_highest else held.unchecked)
    if busy is None or lacking:
        names = (*lacking, *(() if busy is not None else (_NO_BUSY,)))
        return frame.cant_tell(case, f"{said}; {' and '.join(names)} not known", names,
                               _how(names, held.how))  # fmt: skip
    if too_short:
        why = f"the queue rises through all of the {grew.window_s:.0f} s watched"
        why += f"; an overload takes {least_s:g} s"
        how = f"watch longer: --watch, or --watch-for {2 * least_s / 60:g}m"
        return frame.cant_tell(case, why, ("a longer watch",), how)
    check = frame.judge(case, lambda: grown_s, least_s, least_s, says=lambda _: f"{said}, {device}")
    return replace(check, exact=busy_share(case) is not None)


def _calm(held: Held, idle: str) -> str | None:
    """Why it is no overload, however long the queue grows; None where it may be one."""
    if held.room:
        return held.room[0]
    if idle:
        return idle
    checked = not (held.at_highest or held.untold or held.unchecked)
    return "no limit that a knob sets is reached" if checked else None


def _held(case: Case, found: list[Check]) -> Held:
    room: list[str] = []
    untold: list[str] = []
    unchecked: list[str] = []
    at_highest, how = 0, ""
    for check in found:
        if check.key in RAISED_BY and check.node.state is State.CANT_TELL:
            unchecked += check.node.missing
            how = how or check.node.how_to_get
        if check.key not in RAISED_BY or not check.firing:
            continue
        knob = obeyed(RAISED_BY[check.key], case.s.config)
        values, highs = case.s.numbers(knob), case.s.numbers(knob + _HIGH)
        if values is None or highs is None:
            untold += [n for n, v in ((knob, values), (knob + _HIGH, highs)) if v is None]
            continue
        if (raisable := _raisable(case, values, highs)) is None:
            at_highest += 1
        else:
            room.append(f"{knob} {raisable}")
    return Held(tuple(room), at_highest, tuple(untold), tuple(unchecked), how)


def _raisable(case: Case, values: list[float], highs: list[float]) -> str | None:
    """`8 at b can be raised, up to 64`, of the first replica that has room; None where none has.
    Which one is said where they differ."""
    settings = list(zip(values, highs, strict=True))
    for name, (value, high) in zip(case.s.config_by_replica or ("",), settings, strict=True):
        if value < high:
            where = f" at {name}" if len(set(settings)) > 1 else ""
            return f"{value:g}{where} can be raised, up to {high:g}"
    return None


def _how(names: tuple[str, ...], otherwise: str) -> str:
    settable = [name for name in names if name.removesuffix(_HIGH) in KNOBS]
    told = [f"tell it: {' '.join(f'--set {name}=N' for name in settable)}"] if settable else []
    if _NO_BUSY in names:
        told.append("slotune's engine counts its busy time; else let dcgm-exporter be scraped")
    return "; ".join(told) or otherwise or LOOK_FOR_IT


def _saturation(case: Case) -> tuple[float | None, str]:
    """(share of the time that the device is busy, the same in words); where nothing tells, how
    often requests ran when it was asked: an engine that holds some makes step after step."""
    if (busy := busy_share(case)) is not None:
        return busy, f"the device is busy {busy:.0%} of the time"
    share = case.s.value("running_share")
    return share, "" if share is None else f"requests ran at {share:.0%} of the scrapes"
