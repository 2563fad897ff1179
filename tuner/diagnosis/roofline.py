"""Leaves that ask what the device itself is bound by: arithmetic, bandwidth, host or throttling.

A busy device proves nothing by itself: GPU "utilisation" is high for one resident kernel, so only
achieved FLOP/s, bytes/s, the engine's phase times or the profiler's activity are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.diagnosis import levers
from tuner.diagnosis.context import LOOK_AT_ONE, Case, Check, Frame
from tuner.diagnosis.peaks import peak, peaks, unlike
from tuner.diagnosis.registry import how_to_get

_DEVICE_SHARE = (
    ("step_duration_seconds", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    "use slotune's engine, or let dcgm-exporter be scraped",
)
"""What is missing where the device's share of the time is not known, and how to get it."""

PREFILL = ("prefill", "mixed")
DECODE = ("decode",)
KINDS = ("prefill", "mixed", "decode")
_COUNTED = ("s", "flops", "bytes")
NS_PER_S = 1e9
"""DCGM counts violations in nanoseconds, whatever older exporters say of them."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where steps of one kind lie under the roofline; shares of the device's peaks while it
    computed them. intensity and ridge are in FLOP per byte. replica: "" where it is of all."""

    kind: str
    mfu: float
    mbu: float
    intensity: float
    ridge: float
    replica: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} steps" + (f" of {self.replica}" if self.replica else "")

    @property
    def side(self) -> str:
        return "arithmetic" if self.intensity >= self.ridge else "memory"

    def __str__(self) -> str:
        return (
            f"MFU {self.mfu:.0%}, MBU {self.mbu:.0%}, {self.intensity:.3g} FLOP/B against a ridge "
            f"of {self.ridge:.3g}: under the {self.side} roof"
        )


def points(case: Case) -> list[Point]:
    """One per kind of step that ran, of unlike devices for each one; one of all steps where the
    engine tells their sum only."""
    each = [_point(case, kind, replica) for replica in unlike(case) or ("",) for kind in KINDS]
    return [point for point in each if point is not None] or _all_steps(case)


def _point(case: Case, kind: str, replica: str) -> Point | None:
    spent, flops, moved = (_counted(case, f"kind_{w}", (kind,), replica) for w in _COUNTED)
    peak_flops, peak_bytes = peaks(case, replica)
    if not (spent and flops and moved and peak_flops and peak_bytes):
        return None
    shares = (flops / spent / peak_flops, moved / spent / peak_bytes)
    return Point(kind, *shares, flops / moved, peak_flops / peak_bytes, replica)


def _counted(case: Case, what: str, kinds: tuple[str, ...], replica: str) -> float:
    """Of one replica, or of all (""), in steps of these kinds."""
    if not replica:
        return sum(case.s.of(what).get(kind, 0.0) for kind in kinds)
    return sum(case.s.of(f"{what}_by_replica").get(f"{replica}/{kind}", 0.0) for kind in kinds)


def _all_steps(case: Case) -> list[Point]:
    """Over the window, its idle time included: that takes off the shares, not off FLOP per byte.
    None of unlike devices: what all did together is no share of any one's peak."""
    if unlike(case):
        return []
    flops, moved = case.s.value("flops"), _moved(case)
    peak_flops, peak_bytes = peaks(case)
    if not (flops and moved and peak_flops and peak_bytes):
        return []
    shares = (flops / case.replicas / peak_flops, moved / case.replicas / peak_bytes)
    return [Point("all", *shares, flops / moved, peak_flops / peak_bytes)]


def _moved(case: Case) -> float | None:
    """Bytes per second that all engines read and write; None where either is not told."""
    read, write = case.s.value("read_bytes"), case.s.value("write_bytes")
    return None if read is None or write is None else read + write


def evidence(case: Case) -> tuple[tuple[str, str], ...]:
    return tuple((point.name, str(point)) for point in points(case))


def mfu(case: Case) -> float | None:
    """Achieved / peak FLOP/s: while steps with prompts were computed, else over the window, of one
    device on average; of unlike devices that of the one which is nearest to its own peak, None
    where their steps are not counted apart."""
    if (counted := _of_kinds(case, "kind_flops", PREFILL, "peak_flops")) is not None:
        return counted
    return _of_one(case, case.s.value("flops"), "peak_flops")


def mbu(case: Case) -> float | None:
    """Achieved / peak bytes/s, reads and writes: in pure decode steps where most time goes to
    them, else in all steps, else over the window, of one device as in mfu."""
    kinds = DECODE if (kind_share(case, DECODE) or 0.0) >= case.t("kind_most") else KINDS
    if (counted := _of_kinds(case, "kind_bytes", kinds, "peak_bytes")) is not None:
        return counted
    return _of_one(case, _moved(case), "peak_bytes")


def _of_one(case: Case, of_all: float | None, name: str) -> float | None:
    """What all devices do per second ÷ the peak of all; None where they are unlike."""
    highest = peak(case, name)
    if of_all is None or not highest or unlike(case):
        return None
    return of_all / case.replicas / highest


def of_peak(case: Case, share: float, unit: str) -> str:
    """`90% of peak FLOP/s`, and whose where devices are unlike."""
    of_one = ", of the replica that is nearest to its own" if unlike(case) else ""
    return f"{share:.0%} of peak {unit}{of_one}"


def kind_share(case: Case, kinds: tuple[str, ...]) -> float | None:
    """Share of the computing time that steps of these kinds take; None where it is not counted."""
    spent = case.s.of("kind_s")
    total = sum(spent.values())
    return sum(spent.get(kind, 0.0) for kind in kinds) / total if total else None


def arithmetic_bound(case: Case) -> float | None:
    """The MFU of steps with prompts where it shows that arithmetic binds them, else None."""
    share = mfu(case)
    if share is None or not case.t("mfu_compute_bound") <= share <= case.t("plausible_ratio"):
        return None
    return share


def _of_kinds(case: Case, work: str, kinds: tuple[str, ...], name: str) -> float | None:
    """Work per second of computing in these kinds of steps ÷ peak; None where none ran."""
    shares = []
    for replica in unlike(case) or ("",):
        spent, done = (_counted(case, what, kinds, replica) for what in ("kind_s", work))
        highest = peak(case, name, replica)
        if spent and done and highest:
            shares.append(done / spent / highest)
    return max(shares, default=None)


def bound(case: Case) -> str | None:
    """What the roofline says the device is at, in words; None where it is at neither roof."""
    compute, memory, most = arithmetic_bound(case), mbu(case), case.t("plausible_ratio")
    if compute is not None:
        return f"compute-bound: {of_peak(case, compute, 'FLOP/s')}"
    if memory is not None and case.t("mbu_warning") <= memory <= most:
        return f"bandwidth-bound: {of_peak(case, memory, 'bytes/s')}"
    return None


def device_share(case: Case) -> float | None:
    """Share of the busy time that the device computes: the engine's own times first, of which what
    lies between two steps is in no phase, then the profiler's."""
    phases = case.s.of("phase_s")
    busy_s = max(sum(phases.values()), case.s.value("busy_s") or 0.0)
    if phases and busy_s > 0:
        return phases.get("forward", 0.0) / busy_s
    return case.s.value("device_active")


def compute_bound(case: Case, frame: Frame | None = None) -> Check:
    frame = frame or Frame("3b.compute", "Compute-bound", "3b", ("flops",), ("peak_flops",), "MFU",
                  (levers.FASTER_DEVICE, levers.LESS_COMPUTE))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    share = mfu(case)
    if share is None:
        return _no_share(case, frame, "FLOP/s", "flops")
    if share > case.t("plausible_ratio"):
        return _over_the_roof(case, frame, share, "FLOP/s", "flops")
    return frame.judge(case, lambda: share, case.t("mfu_compute_bound"), evidence=evidence(case),
                       says=lambda v: of_peak(case, v, "FLOP/s"))  # fmt: skip


def _no_share(case: Case, frame: Frame, unit: str, kind: str) -> Check:
    if unlike(case):
        why = f"the devices' peak {unit} differ, and what each one does is not told"
        return frame.cant_tell(case, why, ("each replica's own work",), LOOK_AT_ONE)
    return _peak_needed(case, frame, kind, f"the device's peak {unit} is not known")


def _over_the_roof(case: Case, frame: Frame, share: float, unit: str, kind: str) -> Check:
    """More than the device's peak cannot be: the peak is wrong, so nothing is concluded."""
    why = f"{share:.0%} of the device's peak {unit}: that peak is told too low"
    return _peak_needed(case, frame, kind, why)


def _peak_needed(case: Case, frame: Frame, kind: str, why: str) -> Check:
    return frame.cant_tell(case, why, (f"device_peak{{kind={kind}}}",), how_to_get("peak_flops"))


def small_steps(case: Case) -> Check:
    """3b.host: the device idles although prompts wait to be read."""
    frame = Frame(
        "3b.host", "Host or kernel overhead", "3b", ("step_tokens",),
        ("phase_s", "busy_s", "flops", "device_active"), "device share", (levers.HOST,),
    )  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    device, chunk, share = device_share(case), case.s.number("chunk_size"), mfu(case)
    tokens = case.s.value("step_tokens") or 0.0
    if device is not None:
        low = case.t("device_busy_low")
        return _below(case, frame, device, low, f"the device computes {device:.0%} of busy time")
    if share is None or not chunk:
        why = "neither phase times, device activity nor MFU are known"
        return frame.cant_tell(case, why, *_DEVICE_SHARE)
    small = tokens <= case.t("small_step") * chunk
    said = f"MFU {share:.0%} with {tokens:.0f} tokens per step"
    return _below(case, frame, share, case.t("mfu_low"), said, when=small)


def _below(
    case: Case, frame: Frame, value: float, least: float, said: str, *, when: bool = True
) -> Check:
    """A node that fires when value ≤ least. judge() fires from a threshold upwards: it is given one
    that every value reaches, and `when` decides."""
    check = frame.judge(case, lambda: value, -1.0, says=lambda _: said,
                        when=when and value <= least, comparison="≤")  # fmt: skip
    return with_threshold(check, least)


def with_threshold(check: Check, threshold: float) -> Check:
    if check.node.value is None:
        return check
    return replace(check, node=replace(check.node, threshold=threshold))


def bandwidth_bound(case: Case) -> Check:
    frame = Frame(
        "4.bandwidth", "Bandwidth-bound", "4", ("read_bytes", "write_bytes"), ("peak_bytes",),
        "MBU", (levers.LESS_BANDWIDTH, levers.FEWER_SEQS),
        ("reading GPU utilisation: it is high for any resident kernel and proves nothing",),
    )  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    share = mbu(case)
    if share is None:
        return _no_share(case, frame, "bytes/s", "bandwidth")
    if share > case.t("plausible_ratio"):
        return _over_the_roof(case, frame, share, "bytes/s", "bandwidth")
    return frame.judge(case, lambda: share, case.t("mbu_warning"), case.t("mbu_critical"),
                       says=lambda v: of_peak(case, v, "bytes/s"),
                       evidence=evidence(case))  # fmt: skip


def host_bound(case: Case) -> Check:
    frame = Frame("4.host", "Host-bound", "4", ("running",), ("phase_s", "busy_s", "device_active"),
                  "device share", (levers.HOST,),
                  ("raising max_num_seqs: throughput rises, TPOT does not fall",))  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    device = device_share(case)
    if device is None:
        return frame.cant_tell(case, "the device's busy share is not known", *_DEVICE_SHARE)
    return _below(case, frame, device, case.t("device_busy_low"),
                  f"the device computes {device:.0%} of busy time",
                  when=case.running() >= case.t("waiting_some"))  # fmt: skip


def throttled(case: Case) -> Check:
    """One of the two caps is enough to tell that clocks are held down, and none that they are not
    while the other one is unknown."""
    caps = ("power_throttle", "thermal_throttle")
    share = max(case.s.value(name) or 0.0 for name in caps) / NS_PER_S
    known = tuple(name for name in caps if case.s[name].ok)
    uses = known if share >= case.t("throttled_share") else caps
    frame = Frame("4.throttled", "Throttled", "4", uses, unit="share of time",
                  levers=(levers.COOLING,))  # fmt: skip
    if case.s.config.get("device", "").startswith("cpu"):
        return frame.not_applicable(case, "a CPU exports no power or thermal cap")
    return frame.judge(
        case, lambda: share, case.t("throttled_share"),
        says=lambda v: f"one device's clocks were held down {v:.0%} of the time",
    )  # fmt: skip
