"""What a server's metrics say of one measurement, while it is made: signals and the diagnosis.

Wraps the measuring function, so that whatever measures (a trial, tried twice) is watched.
Invariant: a server that exports nothing, or stops answering, costs the diagnosis and never the
measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from storage.sources import open_source
from storage.sources.base import MetricSource, Reading
from tuner.diagnosis import Diagnosis, Signals, asked_quantiles, collect, diagnose
from tuner.diagnosis.client_side import readings_of
from tuner.diagnosis.registry import dialect_of
from tuner.diagnosis.server_info import server_info
from tuner.endpoint import Endpoint
from tuner.measure import Measurement, MeasurementInterrupted, Sending
from tuner.slo import SloSet
from tuner.targets.base import UNSET, Config
from tuner.targets.flags import AUTO
from tuner.workload import Workload

SCRAPE_S = 0.5

Made = TypeVar("Made")


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
        sending = Sending(content_salt=f"verify {seed}".encode())
        made, self.seen = seen_while(
            endpoint.base_url, self.config, self.slos,
            lambda: self.inner(endpoint, workload, seed=seed, sending=sending, **more),
        )  # fmt: skip
        return made


def seen_while(
    url: str, config: Config, slos: SloSet, measure: Callable[[], Made]
) -> tuple[Made, Seen | None]:
    """What measure() returns, and what the server's metrics said meanwhile; None where it exports
    nothing that tells. config: settings that the server may not tell. A Measurement tells the tree
    what its clients saw."""
    source = open_source(url=url, scrape_interval_s=SCRAPE_S)
    try:
        source.status()  # the first scrape
        began_s = time.monotonic()
        made = measure()
        took_s = time.monotonic() - began_s
        try:
            client = readings_of(made) if isinstance(made, Measurement) else {}
            return made, _look(source, url, config, slos, took_s, client)
        except KeyboardInterrupt:
            if isinstance(made, Measurement):
                raise MeasurementInterrupted(made, made.ended_why) from None
            raise
    finally:
        source.close()


def _look(
    source: MetricSource,
    url: str,
    config: Config,
    slos: SloSet,
    window_s: float,
    client: Mapping[str, Reading],
) -> Seen | None:
    if not source.status().up or dialect_of(source.names()) is None:
        return None
    given = {name: value for name, value in config.items() if value not in (UNSET, AUTO)}
    signals = collect(
        source, window_s=max(window_s, 1.0), known=server_info(url) | given,
        quantiles=asked_quantiles(slos.clauses), target=url, client=client,
    )  # fmt: skip
    return Seen(signals, diagnose(signals, slos))
