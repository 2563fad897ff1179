"""A server that is only arithmetic: figures follow from the knobs, time from a counted clock.

The surface resembles a CPU engine: a large chunk makes first tokens late, a very small one costs
throughput; more sequences serve more, up to a point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from storage.rows import Stage
from tuner.endpoint import Endpoint
from tuner.load import LoadResult
from tuner.measure import Measurement, summarize
from tuner.measure.progress import Progress
from tuner.records import RequestRecord
from tuner.search.budget import Plan
from tuner.search.capacity import Capacity
from tuner.search.decide import Config
from tuner.search.each_load import EachLoad
from tuner.search.goal import Goal
from tuner.search.objective import CAPACITY, Objective
from tuner.search.optimize import Search
from tuner.search.pace import Pace
from tuner.search.proposals import Proposer
from tuner.search.ruled_out import Arithmetic
from tuner.search.space import joint_space
from tuner.search.trial import Lab, Outcome
from tuner.search.trials import trials_of
from tuner.search.workers import Workers
from tuner.slo import SloSet, parse_slos
from tuner.targets.base import KnobRange, Setting, TargetError
from tuner.workload import Workload, parse_workload

OUTPUT_TOKENS = 8
DEFAULTS: Config = {"max_num_seqs": 128, "chunk_size": 2048, "gpu_memory_utilization": 0.9}


class MemoryLedger:
    """Keeps outcomes for the life of the process."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def refresh(self) -> None: ...


@dataclass
class FakeTarget:
    """crashes(config) says which settings end the server; ends_in_measurement, in which of the
    measurements, counted from 1, it ends by itself."""

    crashes: Callable[[Config], bool] = lambda config: False
    crash_kind: str = "configuration"
    config: dict[str, Setting] = field(default_factory=lambda: dict(DEFAULTS))
    applied: list[Config] = field(default_factory=list)
    kind: str = "slotune"
    ends_in_measurement: int = 0
    ends_for_good: bool = False
    verified: int = 0

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def describe(self) -> dict[str, Any]:
        """The version, as of servers that are started for a configuration, once they run."""
        return {"kind": self.kind} | ({"version": "1.2"} if self.applied else {})

    def knobs(self) -> dict[str, KnobRange]:
        return {
            "max_num_seqs": KnobRange(int(self.config["max_num_seqs"]), 1, 256, True),
            "chunk_size": KnobRange(int(self.config["chunk_size"]), 1, 8192, True),
            "gpu_memory_utilization": KnobRange(0.9, 0.1, 0.9, True),
        }

    def apply(self, config: Config) -> None:
        self.applied.append(dict(config))
        if self.crashes(dict(config)):
            raise TargetError("out of memory", kind=self.crash_kind, log_tail="last words")  # type: ignore[arg-type]
        self.config = dict(config)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("http://fake")

    def verify(self) -> None:
        self.verified += 1
        if self.verified == self.ends_in_measurement:
            raise TargetError("ended by itself", gone=self.ends_for_good)

    def reset_prefix_cache(self) -> None: ...

    def log_tail(self) -> str:
        return ""


def ttft_s(config: Config) -> float:
    """Median time to first token."""
    chunk, seqs = float(config["chunk_size"]), float(config["max_num_seqs"])
    return 0.1 + 0.6 * (chunk / 2048) ** 0.7 + 0.3 * max(0.0, math.log2(16 / seqs))


def rate(config: Config) -> float:
    """Requests per second."""
    chunk, seqs = float(config["chunk_size"]), float(config["max_num_seqs"])
    return 20 * (1 - 0.25 * max(0.0, math.log2(256 / chunk)) ** 1.2) * (seqs / (seqs + 6))


class LoadAt(LoadResult):
    """A load as it stands now_s after its start: what has not ended by then still runs."""

    def __init__(self, records: list[RequestRecord], now_s: float) -> None:
        sent = [record for record in records if record.scheduled_s < now_s]
        super().__init__(0.0, 0.0, [_as_seen(record, now_s) for record in sent])
        self.at_s = now_s

    def now_s(self) -> float:
        return self.at_s


def _as_seen(record: RequestRecord, now_s: float) -> RequestRecord:
    if record.end_s <= now_s:
        return record
    times = [at_s for at_s in record.chunk_times_s if at_s <= now_s]
    return replace(record, state="censored", end_s=now_s, chunk_times_s=times)


@dataclass
class Surface:
    """Stands for tuner.measure.measure; clock_s goes on by what a measurement would take.

    ttft and rate may take the workload as a second argument.
    """

    target: FakeTarget
    ttft: Callable[..., float] = ttft_s
    rate: Callable[..., float] = rate
    noise: float = 0.03
    dead: Callable[[Config], bool] = lambda config: False
    clock_s: float = 1_000.0
    calls: int = 0
    interrupt_at: int | None = None
    by_load: bool = False
    ended_early: int = 0
    never_stop: bool = False

    def clock(self) -> float:
        return self.clock_s

    def __call__(
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
        self.calls += 1
        if self.calls == self.interrupt_at:
            raise KeyboardInterrupt
        config = self.target.config
        rng = np.random.default_rng((seed, self.calls))
        given = (config, workload) if self.by_load else (config,)
        records = self._records(given, rng, warmup_s, duration_s)
        end_s = self._end_s(records, warmup_s, duration_s, should_stop)
        made = Measurement(
            endpoint, workload, seed, (warmup_s, end_s), self.clock_s,
            [record for record in records if record.scheduled_s < end_s], lag_p99_s=0.0,
            price_per_hour=price_per_hour,
        )  # fmt: skip
        self.clock_s += end_s + 1
        return summarize(made, slos)

    def _end_s(
        self,
        records: list[RequestRecord],
        warmup_s: float,
        duration_s: float,
        should_stop: Callable[[LoadResult, float], bool] | None,
    ) -> float:
        """Looked at every second, as a running measurement is."""
        for second in range(1, int(warmup_s + duration_s)):
            if self.never_stop or should_stop is None:
                break
            if should_stop(LoadAt(records, float(second)), warmup_s):
                self.ended_early += 1
                return float(second)
        return warmup_s + duration_s

    def _records(
        self, given: tuple[Any, ...], rng: np.random.Generator, start_s: float, window_s: float
    ) -> list[RequestRecord]:
        config = given[0]
        noise = float(np.exp(rng.normal(0, self.noise)))
        count = max(1, round(self.rate(*given) * window_s * noise))
        records = []
        for index in range(count):
            at_s = start_s + window_s * index / count
            if self.dead(config):
                records.append(_failed(index, at_s))
                continue
            first_s = at_s + self.ttft(*given) * float(np.exp(rng.normal(0, 0.1)))
            times = [first_s + 0.001 * i for i in range(OUTPUT_TOKENS)]
            record = RequestRecord(index, at_s, at_s, first_s, first_s, first_s, times[-1], times)
            record.chunk_tokens = [1] * OUTPUT_TOKENS
            record.prompt_tokens, record.output_tokens = 64, OUTPUT_TOKENS
            record.http_status, record.finish_reason, record.state = 200, "length", "ok"
            records.append(record)
        return records


def _failed(index: int, at_s: float) -> RequestRecord:
    record = RequestRecord(index, at_s, at_s)
    record.end_s, record.state, record.error = at_s + 0.01, "failed", "HTTP 500: boom"
    return record


class Silent:
    """Events that only remember."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None: ...

    def done(self, outcome: Outcome) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


LOAD = "prompt=64,output=8,rate=10"


def goal_of(
    slo: str = "ttft_p95<500ms",
    *objectives: Objective,
    loads: tuple[str, ...] = (LOAD,),
) -> Goal:
    slos = parse_slos([slo]) if slo else SloSet()
    workloads = tuple(parse_workload(text) for text in loads)
    wanted = objectives or (Objective(),)
    if wanted[0].key == CAPACITY:
        return Capacity(slos, workloads[0])
    return EachLoad(wanted, slos, workloads)


def search_on(
    surface: Surface,
    slo: str = "ttft_p95<500ms",
    *objectives: Objective,
    budget: Any,
    seed: int = 0,
    plan: Plan | None = None,
    ledger: MemoryLedger | None = None,
    sampler: str = "tpe",
    loads: tuple[str, ...] = (LOAD,),
    arithmetic: Arithmetic | None = None,
) -> Search:
    """A search over the synthetic server, in memory."""
    goal = goal_of(slo, *objectives, loads=loads)
    target = surface.target
    space = joint_space(target.knobs())
    rules = arithmetic or Arithmetic(0)
    workers = Workers("study")
    lab = Lab(
        target, goal.loads[0], goal.slos, surface, 10.0, 2.0, clock=surface.clock,
        price_per_hour=3.6,
    )  # fmt: skip
    proposer = Proposer(
        space, goal, sampler_name=sampler, seed=seed, rules_out=rules.rules_out,
        worker=workers.me, alive=workers.alive,
    )  # fmt: skip
    kept = ledger if ledger is not None else MemoryLedger()
    proposer.recover(trials_of(kept.outcomes))
    trials = plan or Plan(10.0, 2.0, search=10, confirm_rounds=3, finalists=2)
    pace = Pace(budget, trials, kept, surface.clock)
    return Search(
        lab, kept, proposer, space, goal, trials, pace, Silent(), dict(DEFAULTS), seed,
        workers, rules,
    )  # fmt: skip
