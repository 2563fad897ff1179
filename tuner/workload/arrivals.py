"""When requests are sent: at a rate (constant, Poisson, gamma) or as soon as a client is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.workload.lengths import plain

Kind = Literal["concurrency", "constant", "poisson", "gamma"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """concurrency: `level` clients, each sends when its last answer ended (closed loop).

    Otherwise `level` requests per second. burstiness is the gamma shape: 1 is Poisson, below 1
    burstier, above 1 more regular.
    """

    kind: Kind
    level: float
    burstiness: float = 1.0

    @property
    def closed(self) -> bool:
        return self.kind == "concurrency"

    def clients_at(self, time_s: float, send_s: float) -> int:
        """Closed loop: how many clients there are time_s into a load that is sent for send_s."""
        return int(self.level)

    def times(self, rng: np.random.Generator, send_s: float) -> Iterator[float]:
        """Open loop: scheduled starts of sessions in seconds, ascending; may end before send_s."""
        now_s = 0.0
        shape = 1.0 if self.kind == "poisson" else self.burstiness
        while True:
            if self.kind == "constant":
                gap_s = 1 / self.level
            else:
                gap_s = float(rng.gamma(shape, 1 / (self.level * shape)))
            now_s += gap_s
            yield now_s

    def __str__(self) -> str:
        if self.closed:
            return f"concurrency={plain(self.level)}"
        text = f"rate={plain(self.level)}"
        if self.kind == "constant":
            text += ",arrivals=constant"
        if self.kind == "gamma":
            text += f",burstiness={plain(self.burstiness)}"
        return text
