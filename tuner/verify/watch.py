"""What a server's metrics say of one measurement, while it is made: signals and the diagnosis.

Wraps the measuring function, so that whatever measures (a trial, tried twice) is watched.
Invariant: a server that exports nothing, or stops answering, costs the diagnosis and never the
measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storage.sources import open_source
from storage.sources.base import MetricSource
from tuner.diagnosis import Diagnosis, Signals, asked_quantiles, collect, diagnose
from tuner.diagnosis.registry import dialect_of
from tuner.diagnosis.server_info import server_info
from tuner.endpoint import Endpoint
from tuner.measure import Measurement, Sending
from tuner.slo import SloSet
from tuner.targets.base import Config
from tuner.workload import Workload

SCRAPE_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    signals: Signals
    diagnosis: Diagnosis

    def state(self, node: str) -> str | None:
        """The node's state; None where the tree has no such node."""
        return next((n.state.value for n in self.diagnosis.nodes if n.key == node), None)


@dataclass(slots=True)
class Watched:
    """A Measure (tuner.search.trial): as `inner`, same content under the same seed, watched.

    config: settings that the server may not tell; seen: of the last measurement, None where the
    server exports nothing that tells.
    """

    inner: Callable[..., Measurement]
    slos: SloSet
    config: Config = field(default_factory=dict)
    seen: Seen | None = None

    def __call__(
        self, endpoint: Endpoint, workload: Workload, *, seed: int, **more: Any
    ) -> Measurement:
        self.seen = None
        source = open_source(url=endpoint.base_url, scrape_interval_s=SCRAPE_S)
        try:
            source.status()  # the first scrape
            began_s = time.monotonic()
            sending = Sending(content_salt=f"verify {seed}".encode())
            made = self.inner(endpoint, workload, seed=seed, sending=sending, **more)
            self.seen = self._look(source, endpoint.base_url, time.monotonic() - began_s)
            return made
        finally:
            source.close()

    def _look(self, source: MetricSource, url: str, window_s: float) -> Seen | None:
        if not source.status().up or dialect_of(source.names()) is None:
            return None
        signals = collect(
            source, window_s=max(window_s, 1.0), server_info=server_info(url) | dict(self.config),
            quantiles=asked_quantiles(self.slos.clauses), target=url,
        )  # fmt: skip
        return Seen(signals, diagnose(signals, self.slos))
