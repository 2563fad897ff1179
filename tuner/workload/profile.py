"""A level over time: steps and ramps of a rate or of a number of clients.

`2@30s/8@60s`: 2 for 30 s, then 8. `1..10`: a ramp over the whole time of sending. `1..10@60s/10`:
a ramp of 60 s, then 10. The last level is held to the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.errors import UserError
from tuner.printable import shortened
from tuner.units import parse_duration_s
from tuner.workload.writing import plain

Floats = npt.NDArray[np.float64]
MAX_LEVEL = 1e6
MAX_STEPS = 1_000
"""Each arrival looks for its step: what has more is a trace."""


@dataclass(frozen=True, slots=True)
class Segment:
    """From one level to another in duration_s; None: in what is left of the time of sending."""

    low: float
    high: float
    duration_s: float | None = None

    def __str__(self) -> str:
        levels = plain(self.low) + (f"..{plain(self.high)}" if self.low != self.high else "")
        return levels + (f"@{plain(self.duration_s)}s" if self.duration_s is not None else "")


@dataclass(frozen=True, slots=True)
class Profile:
    """Segments one after the other. Invariant: only the last may be without a duration."""

    segments: tuple[Segment, ...]

    @property
    def peak(self) -> float:
        return max(max(segment.low, segment.high) for segment in self.segments)

    @property
    def length_s(self) -> float:
        """Of the segments whose duration is given."""
        return sum(segment.duration_s or 0.0 for segment in self.segments)

    def scaled(self, factor: float) -> Profile:
        """The same shape at another height."""
        return Profile(
            tuple(replace(s, low=s.low * factor, high=s.high * factor) for s in self.segments)
        )

    def whole(self) -> Profile:
        """Levels rounded to whole numbers of at least 1: clients."""
        return Profile(
            tuple(
                replace(s, low=max(1.0, float(round(s.low))), high=max(1.0, float(round(s.high))))
                for s in self.segments
            )
        )

    def clients_at(self, time_s: float, send_s: float) -> int:
        """A ramp of clients goes in whole steps of equal length, both ends included."""
        for start_s, length_s, segment in self._spans(send_s):
            if start_s <= time_s < start_s + length_s:
                low, high = int(segment.low), int(segment.high)
                share = (time_s - start_s) / length_s if math.isfinite(length_s) else 0.0
                step = int(share * (abs(high - low) + 1))
                return low + step if high >= low else low - step
        return int(self.segments[-1].high)

    def when(self, counts: Floats, send_s: float) -> Floats:
        """Times at which that many arrivals of a unit rate have come: the integral's inverse.

        counts ascend. Infinite where the rate stays 0 for good.
        """
        times = np.full(len(counts), math.inf)
        done = 0.0
        spans = self._spans(send_s)
        last_s = spans[-1][0] + spans[-1][1]
        tail = Segment(self.segments[-1].high, self.segments[-1].high)
        for start_s, length_s, segment in [*spans, (last_s, math.inf, tail)]:
            if not math.isfinite(start_s):
                break
            area = _area(segment, length_s)
            inside = (counts > done) & (counts <= done + area)
            times[inside] = start_s + _reached(segment, length_s, counts[inside] - done)
            done += area
        return times

    def _spans(self, send_s: float) -> list[tuple[float, float, Segment]]:
        """(start, length, segment) in seconds; a flat segment without a duration has no end."""
        spans = []
        start_s = 0.0
        for segment in self.segments:
            length_s = segment.duration_s
            if length_s is None:
                flat = segment.low == segment.high
                length_s = math.inf if flat else max(send_s - start_s, 1e-9)
            spans.append((start_s, length_s, segment))
            start_s += length_s
        return spans

    def __str__(self) -> str:
        return "/".join(str(segment) for segment in self.segments)


def parse_profile(text: str, what: str, *, whole: bool, at_least: float) -> Profile:
    """One level or several. Raises UserError. whole: clients; at_least: the smallest level that
    counts as one (a step of 0 between others is a pause, for rates)."""
    where = f"--workload: {what}={shortened(text)}"
    pieces = text.split("/")
    if len(pieces) > MAX_STEPS:
        raise UserError(f"{where}: {len(pieces)} steps; at most {MAX_STEPS}, or a trace=FILE")
    segments = []
    for place, piece in enumerate(pieces):
        levels, at, duration = piece.strip().partition("@")
        if not at and place < len(pieces) - 1:
            raise UserError(
                f"{where}: only the last step may be without a duration; write "
                f"for example {what}=2@30s/8@60s"
            )
        low, dots, high = levels.partition("..")
        pause = not whole and len(pieces) > 1 and not dots
        first = _level(low, what, where, whole, 0.0 if pause else at_least)
        second = _level(high, what, where, whole, at_least) if dots else first
        length_s = parse_duration_s(duration, f"{where}:") if at else None
        segments.append(Segment(first, second, length_s))
    profile = Profile(tuple(segments))
    if profile.peak < at_least:
        raise UserError(f"{where} never sends anything")
    return profile


def _level(text: str, what: str, where: str, whole: bool, at_least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UserError(
            f"{where}: {shortened(text)!r} is no number; write for example {what}=4, "
            f"{what}=1..10 or {what}=2@30s/8@60s"
        ) from None
    if not at_least <= number < MAX_LEVEL or (whole and number != int(number)):
        kind = "a whole number" if whole else "a number"
        raise UserError(
            f"{where} must be {kind} of at least {at_least:g} and less than {MAX_LEVEL:.0f}"
        )
    return number


def _area(segment: Segment, length_s: float) -> float:
    mean = (segment.low + segment.high) / 2
    return mean * length_s if mean else 0.0


def _reached(segment: Segment, length_s: float, counts: Floats) -> Floats:
    """Seconds into the segment at which its area is that large."""
    if segment.low == segment.high:
        return counts / segment.low
    slope = (segment.high - segment.low) / length_s
    root = np.sqrt(np.maximum(0.0, segment.low**2 + 2 * slope * counts))
    return 2 * counts / (segment.low + root)
