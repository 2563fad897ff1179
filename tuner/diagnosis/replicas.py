"""Node 7: replicas that do not share the load, and which of them is to blame for what.

Invariant: a leaf fires only where another replica is known to have room: a reading that is missing
is not a 0. Then what all of them together seem to suffer from (a queue, a cap, preemptions) is that
one replica's, and a symptom (settle.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tuner.diagnosis import levers
from tuner.diagnosis.context import LOOK_FOR_IT, Case, Check, Frame
from tuner.diagnosis.slo_node import gate
from tuner.diagnosis.specs import MEAN_LEAST

LEAST = {
    "running": "uneven_least_running",
    "kv_usage": "uneven_least_kv",
    "ttft": "uneven_least_ttft_s",
}
"""Signal → threshold below which the fullest replica has too little for a ratio to tell."""

_ENGINE_KNOBS = ("engine knobs: they are the same on the replica that has room",)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A signal of the fullest replica over the median one's."""

    signal: str
    value: float
    replica: str


def nodes(case: Case) -> list[Check]:
    """Node 7 with its two leaves."""
    found = _ratios(case)
    top = _with_differences(case, _uneven(case, found))
    worst = max(found, key=lambda ratio: ratio.value, default=None)
    return [top, gate(top, _load(case, worst)), gate(top, _slow(case, worst))]


def _with_differences(case: Case, check: Check) -> Check:
    """Node 7 tells in which settings replicas differ, whatever it says of their load."""
    told = tuple(case.s.differing().items())
    return replace(check, node=replace(check.node, evidence=(*check.node.evidence, *told)))


def _no_use(case: Case) -> tuple[str, ...]:
    return () if case.s.differing() else _ENGINE_KNOBS


def _alone(case: Case) -> bool:
    """Is there no second replica? Then nothing is missing where signals are not split."""
    return not case.s.breakdowns.get("running_by_replica")


def _ratios(case: Case) -> list[Ratio]:
    ratios = []
    for signal, least in LEAST.items():
        values = _ttft_s(case) if signal == "ttft" else case.s.of(f"{signal}_by_replica")
        if len(values) < 2:
            continue
        fullest = max(values, key=lambda name: values[name])
        middle = statistics.median_low(values.values())
        if values[fullest] >= case.t(least):
            ratios.append(Ratio(signal, values[fullest] / max(middle, 1e-9), fullest))
    return ratios


def _ttft_s(case: Case) -> dict[str, float]:
    """Mean TTFT of the replicas that answered enough requests for a mean."""
    parts = case.s.breakdowns.get("ttft_by_replica", {})
    return {
        name: mean for name, mean in case.s.of("ttft_by_replica").items()
        if parts[name].samples >= MEAN_LEAST
    }  # fmt: skip


def _uneven(case: Case, found: list[Ratio]) -> Check:
    """Node 7: the fullest replica against the median one, by running, KV and TTFT."""
    frame = Frame("7", "Uneven replicas", also=("running_by_replica", "kv_usage_by_replica",
                  "ttft_by_replica"), unit="max / median", levers=(levers.ROUTER,))  # fmt: skip
    if not found:
        why = "one replica only" if _alone(case) else "no replica has work"
        return frame.not_applicable(case, why)
    worst = max(found, key=lambda ratio: ratio.value)
    shown = f"{worst.value:.1f} ×" if worst.value < 100 else "far above"
    return frame.judge(
        case, lambda: worst.value, case.t("uneven_warning"), case.t("uneven_critical"),
        says=lambda _: f"{worst.signal} of {worst.replica} is {shown} the median replica's",
        evidence=tuple((r.signal, f"{r.value:.2f} × at {r.replica}") for r in found),
    )  # fmt: skip


_USES = ("tokens_by_replica", "waiting_by_replica", "kv_usage_by_replica")


def _load(case: Case, worst: Ratio | None) -> Check:
    """7.load: the fullest replica is given more than its share."""
    frame = Frame("7.load", "One replica gets too much", "7", _USES, ("running_by_replica",),
                  "× its share", (levers.ROUTER,), _no_use(case))  # fmt: skip
    if _alone(case):
        return frame.not_applicable(case, "one replica only")
    if worst is None or not case.s.of("tokens_by_replica"):
        return frame.unread(case) or frame.not_applicable(case, "no replica has work")
    if (untold := _untold(case, frame, "tokens_by_replica", _replicas(case))) is not None:
        return untold
    share, room = _share(case, worst.replica), _with_room(case, worst.replica)
    return frame.judge(
        case, lambda: share, case.t("uneven_share"), when=room is not None,
        says=lambda _: f"{worst.replica} does {_percent(case, worst.replica)} of the tokens of "
        f"{len(case.s.of('tokens_by_replica'))} replicas; {_room(case, room)}",
    )  # fmt: skip


def _slow(case: Case, worst: Ratio | None) -> Check:
    """7.slow: the fullest replica is given no more than its share and takes longer for it."""
    frame = Frame("7.slow", "One replica is slow", "7", (*_USES, "ttft_by_replica"), (),
                  "max / median", (levers.ROUTER, levers.SLOW_REPLICA), _no_use(case))  # fmt: skip
    if _alone(case):
        return frame.not_applicable(case, "one replica only")
    if worst is None or not case.s.of("ttft_by_replica"):
        return frame.unread(case) or frame.not_applicable(case, "no replica has work")
    for signal, names in (("tokens_by_replica", _replicas(case)),
                          ("ttft_by_replica", [worst.replica])):  # fmt: skip
        if (untold := _untold(case, frame, signal, names)) is not None:
            return untold
    ttft = _ttft_s(case)
    if worst.replica not in ttft:
        why = f"{worst.replica} answered fewer than {MEAN_LEAST} requests"
        return frame.cant_tell(case, why, ("ttft_by_replica",), "watch longer: --watch-for 60s")
    mine, middle = ttft[worst.replica], statistics.median_low(ttft.values())
    room = _with_room(case, worst.replica)
    fair = _share(case, worst.replica) < case.t("uneven_share")
    return frame.judge(
        case, lambda: mine / max(middle, 1e-9), case.t("uneven_warning"),
        case.t("uneven_critical"), when=fair and room is not None,
        says=lambda ratio: f"{worst.replica} does {_percent(case, worst.replica)} of the tokens "
        f"and takes {ratio:.1f} × the median replica's TTFT; {_room(case, room)}",
    )  # fmt: skip


def _replicas(case: Case) -> list[str]:
    return sorted(case.s.of("running_by_replica") or case.s.of("tokens_by_replica"))


def _untold(case: Case, frame: Frame, signal: str, replicas: Iterable[str]) -> Check | None:
    """The result where one of these replicas has no reading of a signal; None when all have one."""
    known = case.s.of(signal)
    lacking = [name for name in replicas if name not in known]
    if not lacking:
        return None
    why = f"{signal} of {', '.join(lacking)} is not known"
    return frame.cant_tell(case, why, (signal,), LOOK_FOR_IT)


def _share(case: Case, replica: str) -> float:
    """Its part of all tokens, times the number of replicas: 1 is its fair share."""
    tokens = case.s.of("tokens_by_replica")
    total = sum(tokens.values())
    return tokens.get(replica, 0.0) * len(tokens) / total if total else 0.0


def _percent(case: Case, replica: str) -> str:
    return f"{_share(case, replica) / max(1, len(case.s.of('tokens_by_replica'))):.0%}"


def _with_room(case: Case, full: str) -> str | None:
    """Another replica that is known to take more: its queue is short beside the full one's, its KV
    not full, nor it at a cap that is lower, and it answers sooner."""
    waiting, kv = case.s.of("waiting_by_replica"), case.s.of("kv_usage_by_replica")
    enough = max(case.t("waiting_some"), waiting.get(full, 0.0) / case.t("uneven_critical"))
    others = [name for name in _replicas(case) if name != full and name in waiting and name in kv]
    for other in sorted(others, key=lambda name: (waiting[name], kv[name])):
        unfilled = kv[other] < case.t("kv_full") and not _at_its_cap(case, other, full)
        if waiting[other] < enough and unfilled and _sooner(case, other, full):
            return other
    return None


def _at_its_cap(case: Case, replica: str, full: str) -> bool:
    """Whether as many run as its max_num_seqs lets, where that is less than the full one's."""
    cap, most = (case.s.number_at("max_num_seqs", name) for name in (replica, full))
    if cap is None or most is None or cap >= most:
        return False
    return case.s.of("running_by_replica").get(replica, 0.0) >= case.t("at_cap") * cap


def _sooner(case: Case, other: str, full: str) -> bool:
    """Whether it answers sooner than the full one; one that is measured to do nothing would."""
    ttft = case.s.of("ttft_by_replica")
    if other not in ttft:
        return case.s.of("tokens_by_replica").get(other) == 0
    return full in ttft and ttft[other] * case.t("uneven_warning") <= ttft[full]


def _room(case: Case, replica: str | None) -> str:
    if replica is None:
        return "no other is known to have room"
    waiting = case.s.of("waiting_by_replica")[replica]
    running = case.s.of("running_by_replica").get(replica, 0.0)
    return f"{replica} has room ({running:.0f} run, {waiting:.0f} wait)"
