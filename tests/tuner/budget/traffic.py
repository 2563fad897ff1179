"""Recordings of counters that grow evenly, as an engine's page would show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.sources import RecordedSource

START_S = 1_800_000_000.0
DAYS_S = 3 * 86_400.0 + 1200.0
FINE_S, COARSE_S = 60.0, 600.0
FINE_FOR_S = 7 * 3600.0
TTFT = "vllm:time_to_first_token_seconds"


@dataclass(frozen=True)
class PerMinute:
    """Events a minute. good and late are first tokens below and above 0.5 s."""

    good: float = 0.0
    late: float = 0.0
    aborted: float = 0.0
    refused: float = 0.0
    more: Mapping[str, float] = field(default_factory=dict)

    def counters(self) -> dict[str, float]:
        answered = self.good + self.late
        found = {
            f'{TTFT}_bucket{{le="0.5"}}': self.good,
            f'{TTFT}_bucket{{le="1.0"}}': answered,
            f'{TTFT}_bucket{{le="+Inf"}}': answered,
            f"{TTFT}_count": answered,
            'vllm:request_success_total{finished_reason="stop"}': answered,
            'vllm:request_success_total{finished_reason="abort"}': self.aborted,
        }
        if self.refused:
            found['vllm:admission_rejections_total{reason="queue"}'] = self.refused
        return {**found, **self.more}


def recorded(traffic: PerMinute, *, span_s: float = DAYS_S) -> RecordedSource:
    pages = pages_of(traffic, span_s)
    return RecordedSource(pages, now_s=pages[-1][0], scrape_interval_s=FINE_S)


def pages_of(traffic: PerMinute, span_s: float = DAYS_S) -> list[tuple[float, str]]:
    """(Unix seconds, page) of a scrape a minute in the last hours, one in ten minutes before."""
    times_s = []
    at_s = -span_s
    while at_s <= 0:
        times_s.append(at_s)
        at_s += COARSE_S if at_s < -FINE_FOR_S else FINE_S
    end_s = START_S + DAYS_S
    return [(end_s + at_s, page(traffic, (at_s + span_s) / 60)) for at_s in times_s]


def page(traffic: PerMinute, minutes: float) -> str:
    lines = [f"{name} {count * minutes}" for name, count in traffic.counters().items()]
    return "\n".join([*lines, "vllm:num_requests_running 1", ""])
