"""What the devices can do at most: peaks that a person gives, or that each engine tells of its own.

Invariant: no replica is held against the peak of a device that is not like its own.
"""

from __future__ import annotations

import statistics

from tuner.diagnosis.context import Case


def peaks(case: Case, replica: str = "") -> tuple[float | None, float | None]:
    """(FLOP/s, bytes/s) of a replica's device; "": of one of all, on average. None is not known."""
    return peak(case, "peak_flops", replica), peak(case, "peak_bytes", replica)


def peak(case: Case, name: str, replica: str = "") -> float | None:
    """The one of this name, of PEAKS."""
    return _given(case)[name] or _told(case, name, replica)


def unlike(case: Case) -> tuple[str, ...]:
    """The replicas, where their engines tell peaks further apart than measuring the same device
    anew gives; () where they do not, or a person gives both."""
    told = [case.s.of(f"{name}_by_replica") for name, given in _given(case).items() if not given]
    most = case.t("unlike_peaks")
    if not any(own and max(own.values()) > most * min(own.values()) for own in told):
        return ()
    return tuple(dict.fromkeys(replica for own in told for replica in own))


def _given(case: Case) -> dict[str, float | None]:
    device = case.t.device
    return {"peak_flops": device.flops_per_s, "peak_bytes": device.bytes_per_s}


def _told(case: Case, name: str, replica: str) -> float | None:
    """0 is not known; where one of several does not tell, nothing is known of all."""
    own = case.s.of(f"{name}_by_replica")
    if replica:
        return own.get(replica) or None
    if f"{name}_by_replica" not in case.s.breakdowns:
        return case.s.value(name) or None
    complete = len(own) == case.replicas and all(own.values())
    return statistics.fmean(own.values()) if complete else None
