"""What one run has shown: its records, the window that counts, and the figures made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner import figures
from tuner.endpoint import Endpoint
from tuner.load.stalls import LoopStalls
from tuner.measure.cautions import GeneratorLoop, notes, why_invalid
from tuner.measure.window import Chosen, saturation_of
from tuner.records import RequestRecord
from tuner.server_side import ServerSide
from tuner.slo.grammar import SloSet
from tuner.stats.estimate import Estimate
from tuner.stats.runs import RunNoise
from tuner.stats.saturation import Saturation
from tuner.workload import Workload


@dataclass(slots=True)
class Measurement:
    """Everything one run has shown. window_s = (start, end) on the records' clock.

    chosen: why this window; None for records that came with theirs. run_ends_s: where one of
    several pooled runs ends and the next begins. saturation: more was offered than served.
    stalls: of the generator's event loops, None where they were not watched; loop is what a stored
    run has kept of them. ended_why: what ended the run before its time. accuracy: of a quality
    check on the same server, None where there was none.
    """

    endpoint: Endpoint
    workload: Workload
    seed: int
    window_s: tuple[float, float]
    began_unix_s: float
    records: list[RequestRecord]
    lag_p99_s: float
    invalid_reason: str = ""
    server: ServerSide | None = None
    price_per_hour: float | None = None
    notes: list[str] = field(default_factory=list)
    summary: dict[str, Estimate] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    chosen: Chosen | None = None
    run_ends_s: tuple[float, ...] = ()
    saturation: Saturation | None = None
    stalls: LoopStalls | None = None
    loop: GeneratorLoop | None = None
    processes: int = 1
    ended_why: str = ""
    accuracy: Estimate | None = None

    @property
    def duration_s(self) -> float:
        return self.window_s[1] - self.window_s[0]

    @property
    def generator(self) -> GeneratorLoop | None:
        """What the generator's own event loops were like inside the window."""
        if self.stalls is None:
            return self.loop
        return GeneratorLoop.within(self.stalls, self.window_s)

    @property
    def in_window(self) -> list[RequestRecord]:
        return figures.in_window(self.records, self.window_s)

    def summary_dict(self) -> dict[str, Any]:
        """The summary as JSON-able values."""
        return {
            "window_s": list(self.window_s),
            "window": self.chosen.as_dict() if self.chosen is not None else None,
            "saturation": self.saturation.as_dict() if self.saturation is not None else None,
            "generator": {
                "processes": self.processes,
                **(asdict(self.generator) if self.generator is not None else {}),
            },
            "ended_why": self.ended_why,
            "lag_p99_s": self.lag_p99_s,
            "invalid_reason": self.invalid_reason,
            "notes": self.notes,
            "counts": self.counts,
            "figures": {name: estimate.as_dict() for name, estimate in self.summary.items()},
            "failures": figures.failure_reasons(self.in_window),
        }


def summarize(
    made: Measurement, slos: SloSet | None, noise: Mapping[str, RunNoise] | None = None
) -> Measurement:
    """Fill summary, counts and validity from the records; also for stored records. noise: between
    runs, by figure, where a study knows it."""
    inside = made.in_window
    states = [record.state for record in inside]
    made.counts = {
        "sent": len(inside),
        "ok": states.count("ok"),
        "failed": states.count("failed"),
        "censored": states.count("censored"),
        "warmup": len(made.records) - len(inside),
    }
    made.summary = figures.summary(
        made.records, made.window_s, slos or SloSet(), made.price_per_hour, made.run_ends_s, noise
    )
    if made.accuracy is not None:
        made.summary["accuracy"] = made.accuracy
    if not made.run_ends_s:  # pooled runs keep that of the one that showed it
        made.saturation = saturation_of(made.records, made.workload.arrivals, made.window_s)
    made.notes = notes(made)
    made.invalid_reason = why_invalid(made, slos or SloSet())
    return made
