"""The engine's core: schedule, execute, postprocess. No torch, no threads, no sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.scheduler.observations import Observations, ScoredTokenEvent, TokenEvent
from engine.scheduler.plan import BindingLimit, StepOutput, StepPlan
from engine.scheduler.scheduler import Scheduler
from engine.sequence import FinishReason, Sequence
from engine.stats import FinishedStats, PrefillStats, StepStats
from engine.stats_work import ModelCosts

__all__ = ["EngineCore", "Runner", "ScoredTokenEvent", "StepResult", "TokenEvent"]


class Runner(Protocol):
    """Computes one step: the model, or a test's double."""

    def execute(self, plan: StepPlan) -> StepOutput: ...


@dataclass(frozen=True, slots=True)
class StepResult:
    """Tokens for the clients, numbers for the metrics.

    prefilled, itl_s and finished cover all since the last step, requests ended from outside
    included.
    """

    events: list[TokenEvent]
    stats: StepStats
    prefilled: list[PrefillStats]
    itl_s: list[float]
    finished: list[FinishedStats]


class EngineCore:
    """Requests in, steps out. Call from one thread; step() only while has_work."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Callable[[], float] = time.monotonic,
        costs: ModelCosts | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.costs = costs

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    @property
    def num_unfinished(self) -> int:
        return self.scheduler.num_unfinished

    def add_request(self, sequence: Sequence) -> None:
        self.scheduler.add(sequence)

    def abort(self, request_id: str) -> bool:
        return self.scheduler.abort(request_id)

    def finish(self, request_id: str, reason: FinishReason) -> bool:
        return self.scheduler.finish(request_id, reason)

    def step(self, on_planned: Callable[[int, int], None] | None = None) -> StepResult:
        """Schedule, execute, postprocess. on_planned gets the numbers of running and of waiting
        requests before the model computes, which may take seconds."""
        started = self.clock()
        plan = self.scheduler.schedule()
        if on_planned is not None:
            on_planned(len(self.scheduler.running), len(self.scheduler.waiting))
        scheduled = self.clock()
        output = self.runner.execute(plan) if plan else StepOutput({})
        executed = self.clock()
        events = self.scheduler.postprocess(plan, output) if plan else []
        seen = self.scheduler.take_observations()
        stats = self._stats(
            plan, output, events, seen, scheduled - started, self.clock() - executed
        )  # fmt: skip
        return StepResult(events, stats, seen.prefilled, seen.itl_s, seen.finished)

    def _stats(
        self,
        plan: StepPlan | None,
        output: StepOutput,
        events: list[TokenEvent],
        seen: Observations,
        schedule_s: float,
        postprocess_s: float,
    ) -> StepStats:
        scheduler = self.scheduler
        pool = scheduler.pool
        return StepStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_waiting_deferred=0,
            kv_usage=min(1.0, scheduler.kv.usage),
            num_free_blocks=max(0, pool.num_available - pool.num_cached),
            num_cached_blocks=pool.num_cached,
            num_used_blocks=pool.num_used,
            num_scheduled_tokens=plan.num_scheduled_tokens if plan else 0,
            batch_size=len(plan.scheduled) if plan else 0,
            binding_limit=plan.binding_limit if plan else BindingLimit.OTHER,
            num_generated_tokens=len(events),
            num_preemptions=seen.num_preemptions,
            num_preempted_tokens=seen.num_preempted_tokens,
            prefix_query_tokens=seen.prefix_query_tokens,
            prefix_hit_tokens=seen.prefix_hit_tokens,
            schedule_s=schedule_s,
            prepare_s=output.prepare_s,
            forward_s=output.forward_s,
            sample_s=output.sample_s,
            postprocess_s=postprocess_s,
            work=self.costs.of_step(plan) if plan and plan.scheduled and self.costs else None,
        )
