"""When sessions start: at a rate over time, all at once, as a trace says, or when a client is free.

Common random numbers: the gaps are drawn at a rate of 1/s and time is stretched afterwards, so
that the same seed gives the same order at every rate, and more sending time only adds arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.units import count_text
from tuner.workload.profile import Profile, Segment
from tuner.workload.writing import plain

_ARRIVALS = 2**31
"""Last part of the seed of arrivals, beyond every session's number: a stream of their own."""

Kind = Literal["concurrency", "constant", "poisson", "gamma", "at_once", "trace"]
GAPS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Arrivals:
    """concurrency: `level` clients, each sends when its last answer ended (closed loop).

    Otherwise `level` requests per second; at_once: `level` requests at time 0; trace: the mean
    rate of its replay at `speed`. With a profile the level is its peak. burstiness is the gamma
    shape: 1 is Poisson, below 1 burstier, above 1 more regular.
    """

    kind: Kind
    level: float
    burstiness: float = 1.0
    profile: Profile | None = None
    speed: float = 1.0
    recorded_s: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    @property
    def closed(self) -> bool:
        return self.kind == "concurrency"

    @property
    def unit(self) -> str:
        """Of the level."""
        if self.closed:
            return "clients"
        return "requests" if self.kind == "at_once" else "req/s"

    def level_text(self, level: float) -> str:
        """A level of these arrivals: `1 client`, `6 clients`, `2.5 req/s`."""
        if self.unit == "req/s":
            return f"{level:g} {self.unit}"
        return count_text(round(level), self.unit.removesuffix("s"))

    @property
    def last_s(self) -> float | None:
        """When the last session starts, where every one is given: none of them is a warm-up. None
        for loads that last as long as they are sent."""
        if self.kind == "at_once":
            return 0.0
        if self.kind == "trace" and self.recorded_s is not None:
            return float(self.recorded_s[-1]) / self.speed
        return None

    def at(self, level: float) -> Arrivals:
        """The same arrivals at another level: what is scaled is height, number or speed."""
        if self.kind == "trace":
            speed = self.speed * level / self.level
            return replace(self, speed=speed, level=self.mean_rate() * speed)
        if self.profile is None:
            return replace(self, level=float(round(level)) if self.kind == "at_once" else level)
        profile = self.profile.scaled(level / self.level)
        if self.closed:
            profile = profile.whole()
        return replace(self, level=profile.peak, profile=profile)

    def mean_rate(self) -> float:
        """Requests per second of a trace at its own speed."""
        times = self.recorded_s
        assert times is not None
        return len(times) / max(float(times[-1]), 1.0)

    def clients_at(self, time_s: float, send_s: float) -> int:
        """Closed loop: how many clients there are time_s into a load that is sent for send_s."""
        if self.profile is None:
            return int(self.level)
        return self.profile.clients_at(time_s, send_s)

    def times(self, seed: int, send_s: float) -> Iterator[float]:
        """Open loop: scheduled starts of sessions in seconds, ascending; may end before send_s."""
        rng = np.random.default_rng((seed, _ARRIVALS))
        if self.kind == "at_once":
            yield from (0.0 for _ in range(int(self.level)))
        elif self.kind == "trace":
            assert self.recorded_s is not None
            yield from (float(at_s) / self.speed for at_s in self.recorded_s)
        else:
            profile = self.profile or Profile((Segment(self.level, self.level),))
            done = 0.0
            while True:
                counts = done + np.cumsum(self._gaps(rng))
                done = float(counts[-1])
                for at_s in profile.when(counts, send_s).tolist():
                    if math.isinf(at_s):
                        return
                    yield at_s

    def _gaps(self, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Of a unit rate."""
        if self.kind == "constant":
            return np.ones(GAPS_AT_ONCE)
        shape = 1.0 if self.kind == "poisson" else self.burstiness
        return rng.gamma(shape, 1 / shape, GAPS_AT_ONCE)

    def __str__(self) -> str:
        if self.kind == "trace":
            return f"speed={plain(self.speed)}" if self.speed != 1 else ""
        level = plain(self.level) if self.profile is None else str(self.profile)
        if self.closed:
            return f"concurrency={level}"
        if self.kind == "at_once":
            return "rate=inf"
        text = f"rate={level}"
        if self.kind == "constant":
            text += ",arrivals=constant"
        if self.kind == "gamma":
            text += f",burstiness={plain(self.burstiness)}"
        return text
