"""The real scheduler, core and metrics around a device of known physics, in virtual time.

A step takes overhead + max(FLOPs / peak, bytes / bandwidth), so that what binds is known beforehand
and a minute of load costs a second. Metrics are scraped once a virtual second, during steps too;
the tree sees nothing but those pages.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.errors import RequestError
from engine.metrics.engine import EngineMetrics
from engine.metrics.registry import MetricRegistry
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.plan import StepOutput, StepPlan
from engine.sequence import Sequence
from engine.stats_work import ModelCosts
from storage.sources import RecordedSource
from storage.sources.exposition import Exposition, parse_exposition
from tuner.diagnosis import Diagnosis, History, collect, diagnose
from tuner.diagnosis.thresholds import DEFAULT, Thresholds

START_S = 1_800_000_000.0
SCRAPE_S = 1.0
EVALUATE_S = 5.0
WINDOW_S = 20.0
EOS = 3
COSTS = ModelCosts.of(
    num_layer_parameters=50_000_000, hidden_size=512, vocab_size=1000, num_layers=10, num_heads=8,
    head_dim=64, element_bytes=2, kv_bytes_per_token=10_000,
)  # fmt: skip


@dataclass(frozen=True)
class Device:
    """50 µs per prompt token, 5 ms to read the weights once, 1 ms of host time per step."""

    flops_per_s: float = 2e12
    bytes_per_s: float = 2e10
    overhead_s: float = 0.001


@dataclass(frozen=True)
class Request:
    prompt_tokens: int
    output_tokens: int
    prefix_group: int | None = None
    prefix_tokens: int = 0
    ignore_eos: bool = True


Mix = Callable[[random.Random], Request]


@dataclass(frozen=True)
class Load:
    """clients: a closed loop of so many; rate: Poisson arrivals per second. One of them is 0."""

    mix: Mix
    clients: int = 0
    rate: float = 0.0


class Scraped(RecordedSource):
    """A recording that grows."""

    def __init__(self) -> None:
        super().__init__([], scrape_interval_s=SCRAPE_S)
        self._pages: dict[float, Exposition] = {}

    def scrape(self, at_s: float, page: str) -> None:
        self._pages[at_s] = parse_exposition(page, at_s)
        self.add(self._pages[at_s])

    def add(self, page: Exposition) -> None:
        self._store.add(page)

    def at(self, at_s: float) -> dict[str, float]:
        """The page of that second, handed out once."""
        return self._pages.pop(at_s).values


@dataclass
class Lab:
    """knobs: max_num_seqs, chunk_size, kv_blocks; highs: the highest live values. front_end_s: what
    the HTTP process takes before the engine sees a request."""

    max_num_seqs: int = 64
    chunk_size: int = 2048
    kv_blocks: int = 4096
    max_kv_blocks: int = 4096
    device: Device = Device()
    seed: int = 0
    max_queue: int | None = None
    max_num_seqs_high: int = 256
    front_end_s: float = 0.0
    now_s: float = START_S
    stalled: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        config = SchedulerConfig(
            max_num_seqs=self.max_num_seqs, chunk_size=self.chunk_size, max_model_len=8192,
            block_size=16, num_kv_blocks=self.max_kv_blocks, kv_blocks_cap=self.kv_blocks,
            max_num_queued_reqs=self.max_queue,
        )  # fmt: skip
        self.scheduler = Scheduler(config, frozenset({EOS}), self.clock)
        self.core = EngineCore(self.scheduler, self, self.clock, COSTS)
        self.registry = MetricRegistry(model_name="lab", max_model_len=8192)
        self.metrics = EngineMetrics(self.registry)
        self.metrics.set_device_peak(
            flops_per_s=self.device.flops_per_s, bytes_per_s=self.device.bytes_per_s
        )
        self.set()
        self.source = Scraped()
        self._next_scrape_s = self.now_s
        self._due: list[tuple[float, int]] = []
        self._count = 0
        self._client_of: dict[str, int] = {}
        self.load: Load | None = None

    def clock(self) -> float:
        return self.now_s

    # -- knobs -------------------------------------------------------------------------------

    def set(
        self,
        *,
        max_num_seqs: int | None = None,
        chunk_size: int | None = None,
        kv_blocks: int | None = None,
    ) -> None:
        """Turn knobs live, as /admin/config does."""
        self.scheduler.reconfigure(
            max_num_seqs=max_num_seqs, chunk_size=chunk_size, kv_blocks_cap=kv_blocks
        )
        config = self.scheduler.config
        self.metrics.set_cache_config(
            block_size=16, num_gpu_blocks=config.kv_blocks_cap, enable_prefix_caching=True
        )
        self.metrics.set_scheduler_config(
            max_num_seqs=config.max_num_seqs, chunk_size=config.chunk_size
        )

    def server_info(self) -> dict[str, Any]:
        config = self.scheduler.config
        return {
            "device": "cpu",
            "knobs": {
                "max_num_seqs": {"value": config.max_num_seqs, "high": self.max_num_seqs_high},
                "chunk_size": {"value": config.chunk_size, "high": 8192},
            },
        }

    # -- the device ----------------------------------------------------------------------------

    def execute(self, plan: StepPlan) -> StepOutput:
        work = COSTS.of_step(plan)
        moved = work.read_bytes + work.write_bytes
        device = self.device
        forward_s = max(work.flops / device.flops_per_s, moved / device.bytes_per_s)
        self._advance(self.now_s + forward_s + device.overhead_s)
        sampled = {
            share.seq_id: self.random.randrange(10, 1000)
            for share in plan.scheduled
            if share.needs_sample
        }
        return StepOutput(sampled, forward_s=forward_s, prepare_s=device.overhead_s)

    def _advance(self, to_s: float) -> None:
        """Time passes; pages are scraped when they are due, requests arrive."""
        while self._next_scrape_s <= to_s:
            self.now_s = self._next_scrape_s
            self._arrivals()
            self.metrics.before_scrape(0)
            self.source.scrape(self.now_s, self.registry.exposition().decode())
            self._next_scrape_s += SCRAPE_S
        self.now_s = to_s
        self._arrivals()

    # -- the clients ---------------------------------------------------------------------------

    def offer(self, load: Load) -> None:
        """From now on this load; requests of the one before run out."""
        self.load, self._due = load, []
        if load.clients:
            self._due = [(self.now_s + i * 1e-3, i) for i in range(load.clients)]
        else:
            self._due = [(self.now_s + self.random.expovariate(load.rate), -1)]
        heapq.heapify(self._due)
        self._client_of = {}

    def _arrivals(self) -> None:
        while self.load and self._due and self._due[0][0] <= self.now_s:
            at_s, client = heapq.heappop(self._due)
            if client < 0:
                gap_s = self.random.expovariate(self.load.rate)
                heapq.heappush(self._due, (at_s + gap_s, -1))
            self._send(self.load.mix(self.random), at_s, client)

    def _send(self, request: Request, at_s: float, client: int) -> None:
        shared = random.Random(request.prefix_group) if request.prefix_tokens else self.random
        prompt = [shared.randrange(10, 1000) for _ in range(request.prefix_tokens)]
        rest = request.prompt_tokens - request.prefix_tokens
        prompt += [self.random.randrange(10, 1000) for _ in range(rest)]
        name = f"r{self._count}"
        self._count += 1
        sampling = SamplingParams(max_tokens=request.output_tokens, ignore_eos=True)
        sequence = Sequence(name, prompt, sampling, at_s - self.front_end_s)
        sequence.queued_s = at_s
        try:
            self.core.add_request(sequence)
            self._client_of[name] = client
        except RequestError as error:
            self.metrics.on_refused(error)

    # -- time ----------------------------------------------------------------------------------

    def run(self, for_s: float) -> None:
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self._arrivals()
            if self.stalled or not self.core.has_work:
                self._idle(end_s)
                continue
            began_s = self.now_s
            result = self.core.step(self.metrics.on_planned)
            self.metrics.on_step(result, busy_s=self.now_s - began_s)
            for done in result.finished:
                client = self._client_of.pop(done.request_id, -1)
                if client >= 0:
                    heapq.heappush(self._due, (self.now_s, client))

    def _idle(self, end_s: float) -> None:
        due_s = self._due[0][0] if self._due and not self.stalled else end_s
        until_s = min(max(due_s, self.now_s + 1e-6), end_s, self._next_scrape_s + 1e-6)
        if not self.stalled:
            self.metrics.on_idle(until_s - self.now_s)
        self._advance(until_s)

    # -- judgement -----------------------------------------------------------------------------

    def judge(
        self, slos: Any, history: History | None = None, thresholds: Thresholds = DEFAULT
    ) -> Diagnosis:
        return judged(self.source, self.now_s, self.server_info(), slos, history, thresholds)


def judged(
    source: Scraped,
    now_s: float,
    server_info: dict[str, Any],
    slos: Any,
    history: History | None,
    thresholds: Thresholds,
) -> Diagnosis:
    source.now_s = now_s
    signals = collect(
        source, window_s=WINDOW_S, known=server_info, at_s=now_s, quantiles={"itl": [0.9]},
        target="lab",
    )  # fmt: skip
    return diagnose(signals, slos, history, thresholds=thresholds)
