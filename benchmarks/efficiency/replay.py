"""A recorded surface that answers as its engine did, in virtual time.

It stands for a target and for tuner.measure.measure at once. apply() draws one of the point's runs:
that is the noise between runs. A measurement sends the workload's closed loop anew: its warm-up
gets the run's own first requests, then come sections of the run drawn at random (a circular block
bootstrap over time), each request with the latencies it had: that is the noise within a run.
Between two requests a client pauses so long that the run's recorded throughput comes out. Settings
that are in force already cost a server that restarts nothing.
Invariant: the same surface, seed and calls give the same records and the same times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.efficiency.surface import RecordedRun, Surface, key_of
from tuner.endpoint import Endpoint
from tuner.figures import in_window, lag_p99_s, throughput
from tuner.load import LoadResult
from tuner.load.generator import TICK_S
from tuner.measure import Measurement, summarize
from tuner.measure.cautions import GeneratorLoop
from tuner.measure.progress import Progress
from tuner.measure.window import choose_window
from tuner.records import RequestRecord
from tuner.slo import SloSet
from tuner.targets.base import Config, KnobRange, TargetError
from tuner.workload import Workload

SECTIONS = 5
"""That a run is cut into: as many as its intervals are computed from (tuner.stats.sections)."""


class LoadSoFar(LoadResult):
    """A load as it stands at_s after its start: what has not ended by then still runs."""

    def __init__(self, records: Sequence[RequestRecord], at_s: float) -> None:
        super().__init__(0.0, 0.0, [_seen(r, at_s) for r in records if r.scheduled_s < at_s])
        self.at_s = at_s

    def now_s(self) -> float:
        return self.at_s


class Replay:
    """clock_s is the machine time used so far."""

    def __init__(self, surface: Surface, seed: int) -> None:
        self._surface = surface
        self.kind = surface.kind
        self._rng = np.random.default_rng(seed)
        self._config: dict[str, Any] = dict(surface.baseline)
        self._run: RecordedRun | None = None
        self._change_s = 0.0
        self.clock_s = 0.0

    def clock(self) -> float:
        return self.clock_s

    # As a target.

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def knobs(self) -> dict[str, KnobRange]:
        return {
            name: KnobRange(self._config[name], min(values), max(values), self._surface.live)
            for name, values in self._surface.grid.items()
        }

    def apply(self, config: Config) -> None:
        """Raises TargetError where the run drawn had failed, KeyError off the grid."""
        runs = self._surface.points[key_of(config)]
        up = self._run is not None and self._run.state != "failed"
        again = up and self._config == config and not self._surface.live
        self._change_s = 0.0 if again else self._surface.change_s(config)
        self._config, self._run = dict(config), runs[int(self._rng.integers(len(runs)))]
        if self._run.state == "failed":
            self.clock_s += self._run.spent_s
            transient = self._run.failure_kind == "transient"
            raise TargetError(
                self._run.failure_reason, kind="transient" if transient else "configuration"
            )

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("http://replay")

    def verify(self) -> None: ...

    def reset_prefix_cache(self) -> None: ...

    def log_tail(self) -> str:
        return ""

    # As tuner.measure.measure.

    def measure(
        self,
        endpoint: Endpoint,
        workload: Workload,
        *,
        duration_s: float,
        warmup_s: float,
        seed: int,
        slos: SloSet | None,
        price_per_hour: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[LoadResult, float], bool] | None = None,
        stop_when_decided: bool = False,
    ) -> Measurement:
        """Of the run that apply() drew. stop_when_decided is not replayed."""
        assert self._run is not None
        assert not stop_when_decided
        clients, total_s = round(workload.arrivals.level), warmup_s + duration_s
        records = closed_loop(self._run, clients, total_s, self._rng)
        stopped_s = _stopped_s(records, warmup_s, total_s, should_stop)
        if stopped_s < total_s:
            records = [record for record in records if record.scheduled_s < stopped_s]
        ended_s = max(stopped_s, max(record.end_s for record in records))
        chosen = choose_window(
            records, workload.arrivals, least_s=warmup_s, end_s=min(total_s, ended_s),
            load_ended=stopped_s < total_s,
        )  # fmt: skip
        made = Measurement(
            endpoint, workload, seed, chosen.window_s, self.clock_s, records,
            lag_p99_s(in_window(records, chosen.window_s)), price_per_hour=price_per_hour,
            chosen=chosen, loop=GeneratorLoop.from_dict(self._run.generator),
        )  # fmt: skip
        self.clock_s += ended_s + self._change_s
        return summarize(made, slos)


def closed_loop(
    run: RecordedRun, clients: int, total_s: float, rng: np.random.Generator
) -> list[RequestRecord]:
    """What the clients send in total_s seconds, in order, each until its end."""
    found: list[RequestRecord] = []
    requests, pause_s = _drawn(run, rng), _pause_s(run, clients)
    free_s = [0.0] * clients
    while free_s[0] < total_s:
        record = _moved(next(requests), len(found), free_s[0])
        found.append(record)
        heapq.heapreplace(free_s, record.end_s + pause_s)
    return found


def _drawn(run: RecordedRun, rng: np.random.Generator) -> Iterator[RequestRecord]:
    """The warm-up's requests as they came, then sections without end; the window's end joins its
    start."""
    (start_s, end_s), inside = run.window_s, run.inside
    yield from (record for record in run.records if record.scheduled_s < start_s)
    length_s = (end_s - start_s) / SECTIONS
    at_s = np.array([record.scheduled_s for record in inside])
    while True:
        after_s = (at_s - rng.uniform(start_s, end_s)) % (end_s - start_s)
        order = np.argsort(after_s)
        yield from (inside[place] for place in order[: int((after_s < length_s).sum())])


def _pause_s(run: RecordedRun, clients: int) -> float:
    """Little's law: clients × tokens of a request / throughput is what a client takes for one. The
    last requests of a run end sooner, in an emptying engine, and would else speed the replay up."""
    inside = run.inside
    took_s = sum(record.end_s - record.scheduled_s for record in inside) / len(inside)
    tokens = sum(sum(record.chunk_tokens) for record in inside if record.ok) / len(inside)
    rate = throughput(run.records, run.window_s).value
    return max(0.0, clients * tokens / rate - took_s) if rate > 0 else 0.0


def _stopped_s(
    records: Sequence[RequestRecord],
    warmup_s: float,
    total_s: float,
    should_stop: Callable[[LoadResult, float], bool] | None,
) -> float:
    """When the sending ends: it is asked as often as a running measurement asks, while it sends
    and while the last answers come."""
    if should_stop is None:
        return total_s
    ended_s = max(record.end_s for record in records)
    for tick in range(1, int(ended_s / TICK_S) + 1):
        if should_stop(LoadSoFar(records, tick * TICK_S), warmup_s):
            return min(total_s, tick * TICK_S)
    return total_s


def _seen(record: RequestRecord, at_s: float) -> RequestRecord:
    if record.end_s <= at_s:
        return record
    times = [came_s for came_s in record.chunk_times_s if came_s <= at_s]
    return replace(
        record, state="censored", end_s=at_s, chunk_times_s=times,
        chunk_tokens=record.chunk_tokens[: len(times)],
        first_token_s=record.first_token_s if times else float("nan"),
    )  # fmt: skip


def _moved(record: RequestRecord, index: int, at_s: float) -> RequestRecord:
    """The same request, sent at another time."""
    by_s = at_s - record.scheduled_s
    return replace(
        record,
        index=index,
        session=index,
        scheduled_s=at_s,
        sent_s=record.sent_s + by_s,
        first_byte_s=record.first_byte_s + by_s,
        first_token_s=record.first_token_s + by_s,
        first_answer_token_s=record.first_answer_token_s + by_s,
        end_s=record.end_s + by_s,
        chunk_times_s=[came_s + by_s for came_s in record.chunk_times_s],
    )
