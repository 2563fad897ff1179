"""Turns what the core reports into metrics. Series are looked up once, here; a step costs a few
dozen additions, a token one bisection.

Written by the engine thread, except in `on_request_end`, `before_scrape` and `on_failed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.core import StepResult
from engine.errors import RequestError
from engine.metrics.names import (
    ABORT_CAUSES,
    BINDING_LIMITS,
    CACHE_CONFIG_INFO,
    FINISH_REASONS,
    OWN_METRICS,
    REJECTION_REASONS,
    SCHEDULER_CONFIG_INFO,
    STEP_KINDS,
    STEP_PHASES,
    VLLM_METRICS,
    VLLM_OPTIONAL_METRICS,
)
from engine.metrics.registry import MetricRegistry
from engine.stats import FinishedStats, PrefillStats, StepStats
from engine.stats_work import StepWork


class EngineMetrics:
    """The engine's own series and when they move."""

    def __init__(self, registry: MetricRegistry) -> None:
        registry.declare(VLLM_METRICS)
        registry.declare(VLLM_OPTIONAL_METRICS)
        registry.declare(OWN_METRICS)
        self._registry = registry
        self._gauges = _Gauges(registry)
        self._steps = _Steps(registry)
        self._requests = _Requests(registry)
        value = registry.value
        self._idle = value("slotune:engine_idle_seconds")
        self._busy = value("slotune:engine_busy_seconds")
        self._rejected = {
            reason: value("vllm:admission_rejections", reason) for reason in REJECTION_REASONS
        }
        self._aborted = {cause: value("slotune:aborted_requests", cause) for cause in ABORT_CAUSES}
        self._params_n = registry.histogram("vllm:request_params_n")
        self._most_tokens = registry.histogram("vllm:request_max_num_generation_tokens")

    def on_step(self, result: StepResult, *, busy_s: float) -> None:
        """After each step, and after a change that came without one. busy_s: since the step before,
        or since the loop last waited."""
        self.on_busy(busy_s)
        self._gauges.update(result.stats)
        if result.stats.batch_size:
            self._steps.update(result.stats)
        self._steps.observe_gaps(result.itl_s)
        for prefilled in result.prefilled:
            self._requests.prefilled(prefilled)
        for finished in result.finished:
            self._requests.finished(finished)

    def on_planned(self, num_running: int, num_waiting: int) -> None:
        """Before the model computes a step: what runs and waits while it does."""
        self._gauges.planned(num_running, num_waiting)

    def before_scrape(self, num_handed_in: int) -> None:
        """Tell what waits, with the requests the engine loop has not taken yet.

        Written by the event loop only.
        """
        self._gauges.tell_waiting(num_handed_in)

    def on_busy(self, busy_s: float) -> None:
        self._busy.inc(busy_s)

    def on_idle(self, idle_s: float) -> None:
        self._idle.inc(idle_s)

    def on_refused(self, error: RequestError) -> None:
        """A request that a queue limit turned away."""
        rejected = self._rejected.get(error.code)
        if rejected is not None:
            rejected.inc()

    def on_abort(self, cause: str, count: int) -> None:
        self._aborted[cause].inc(count)

    def on_request_end(self, num_tokens: Sequence[int]) -> None:
        """One prompt's outputs have ended with these lengths. Written by the event loop only."""
        self._params_n.observe(len(num_tokens))
        self._most_tokens.observe(max(num_tokens))

    def on_crash(self, num_unfinished: int) -> None:
        """The loop has stopped: what ran has failed."""
        self._requests.success["error"].inc(num_unfinished)
        self._gauges.clear_requests()

    def on_failed(self, count: int) -> None:
        """Requests that came to a loop that had stopped. Written by the event loop, after that."""
        self._requests.success["error"].inc(count)

    def set_memory(self, *, weights: int, kv: int, activations: int, total: int) -> None:
        """Bytes of device memory by use; free is the rest of what the engine may use."""
        free = max(0, total - weights - kv - activations)
        held = {"weights": weights, "kv": kv, "activations": activations, "free": free}
        for kind, size in held.items():
            self._registry.value("slotune:device_memory_bytes", kind).set(size)

    def set_device_peak(self, *, flops_per_s: float, bytes_per_s: float) -> None:
        self._registry.value("slotune:device_peak", "flops").set(flops_per_s)
        self._registry.value("slotune:device_peak", "bandwidth").set(bytes_per_s)

    def set_cache_config(self, **labels: object) -> None:
        self._registry.info(CACHE_CONFIG_INFO, labels)

    def set_scheduler_config(self, **labels: object) -> None:
        self._registry.info(SCHEDULER_CONFIG_INFO, labels)


class _Gauges:
    def __init__(self, registry: MetricRegistry) -> None:
        value = registry.value
        self._running = value("vllm:num_requests_running")
        self._waiting = value("vllm:num_requests_waiting")
        self._in_scheduler, self._in_scheduler_deferred = 0, 0
        self._capacity = value("vllm:num_requests_waiting_by_reason", "capacity")
        self._deferred = value("vllm:num_requests_waiting_by_reason", "deferred")
        self._kv_usage = value("vllm:kv_cache_usage_perc")
        self._free = value("slotune:kv_blocks", "free")
        self._cached = value("slotune:kv_blocks", "cached")
        self._used = value("slotune:kv_blocks", "used")

    def update(self, stats: StepStats) -> None:
        self._in_scheduler_deferred = stats.num_waiting_deferred
        self.planned(stats.num_running, stats.num_waiting)
        self._kv_usage.set(stats.kv_usage)
        self._free.set(stats.num_free_blocks)
        self._cached.set(stats.num_cached_blocks)
        self._used.set(stats.num_used_blocks)

    def planned(self, num_running: int, num_waiting: int) -> None:
        self._running.set(num_running)
        self._in_scheduler = num_waiting

    def tell_waiting(self, num_handed_in: int) -> None:
        waiting, deferred = self._in_scheduler + num_handed_in, self._in_scheduler_deferred
        self._waiting.set(waiting)
        self._capacity.set(max(0, waiting - deferred))
        self._deferred.set(deferred)

    def clear_requests(self) -> None:
        self._in_scheduler_deferred = 0
        self.planned(0, 0)


class _Steps:
    def __init__(self, registry: MetricRegistry) -> None:
        value, histogram = registry.value, registry.histogram
        self._queries = value("vllm:prefix_cache_queries")
        self._hits = value("vllm:prefix_cache_hits")
        self._preemptions = value("vllm:num_preemptions")
        self._preempted_tokens = value("slotune:preempted_tokens")
        self._generated = value("vllm:generation_tokens")
        self._iteration = histogram("vllm:iteration_tokens_total")
        self._batch = histogram("slotune:batch_size")
        self._gaps = histogram("vllm:inter_token_latency_seconds")
        self._limits = {
            limit: value("slotune:step_binding_limit", limit) for limit in BINDING_LIMITS
        }
        self._phases = [
            histogram("slotune:step_duration_seconds", phase).observe for phase in STEP_PHASES
        ]
        self._work = _Work(registry)

    def update(self, stats: StepStats) -> None:
        self._queries.inc(stats.prefix_query_tokens)
        self._hits.inc(stats.prefix_hit_tokens)
        self._preemptions.inc(stats.num_preemptions)
        self._preempted_tokens.inc(stats.num_preempted_tokens)
        self._generated.inc(stats.num_generated_tokens)
        self._iteration.observe(stats.num_scheduled_tokens)
        self._batch.observe(stats.batch_size)
        self._limits[stats.binding_limit.value].inc()
        schedule, prepare, forward, sample, postprocess = self._phases
        schedule(stats.schedule_s)
        prepare(stats.prepare_s)
        forward(stats.forward_s)
        sample(stats.sample_s)
        postprocess(stats.postprocess_s)
        if stats.work is not None:
            self._work.add(stats.work, stats.forward_s)

    def observe_gaps(self, gaps_s: Sequence[float]) -> None:
        observe = self._gaps.observe
        for gap_s in gaps_s:
            observe(gap_s)


class _Work:
    """What the roofline needs: work done, and the time the model took for it."""

    def __init__(self, registry: MetricRegistry) -> None:
        value = registry.value
        self._flops = value("vllm:estimated_flops_per_gpu")
        self._read = value("vllm:estimated_read_bytes_per_gpu")
        self._written = value("vllm:estimated_write_bytes_per_gpu")
        self._peak_flops = value("slotune:device_peak", "flops")
        self._peak_bytes = value("slotune:device_peak", "bandwidth")
        names = ("slotune:step_kind_seconds", "slotune:step_kind_flops", "slotune:step_kind_bytes")
        self._kinds = {kind: tuple(value(name, kind) for name in names) for kind in STEP_KINDS}

    def add(self, work: StepWork, forward_s: float) -> None:
        self._flops.inc(work.flops)
        self._read.inc(work.read_bytes)
        self._written.inc(work.write_bytes)
        seconds, flops, moved = self._kinds[work.kind]
        moved_bytes = work.read_bytes + work.write_bytes
        seconds.inc(forward_s)
        flops.inc(work.flops)
        moved.inc(moved_bytes)
        # A roof is never below what was reached: it was measured while other programs ran.
        if work.flops > self._peak_flops.value * forward_s > 0:
            self._peak_flops.set(work.flops / forward_s)
        if moved_bytes > self._peak_bytes.value * forward_s > 0:
            self._peak_bytes.set(moved_bytes / forward_s)


class _Requests:
    def __init__(self, registry: MetricRegistry) -> None:
        value, histogram = registry.value, registry.histogram
        self.success = {reason: value("vllm:request_success", reason) for reason in FINISH_REASONS}
        self._prompt = value("vllm:prompt_tokens")
        self._cached = value("vllm:prompt_tokens_cached")
        self._computed_source = value("vllm:prompt_tokens_by_source", "local_compute")
        self._cached_source = value("vllm:prompt_tokens_by_source", "local_cache_hit")
        self._ttft = histogram("vllm:time_to_first_token_seconds")
        self._e2e = histogram("vllm:e2e_request_latency_seconds")
        self._queue = histogram("vllm:request_queue_time_seconds")
        self._prefill = histogram("vllm:request_prefill_time_seconds")
        self._decode = histogram("vllm:request_decode_time_seconds")
        self._inference = histogram("vllm:request_inference_time_seconds")
        self._tpot = histogram("vllm:request_time_per_output_token_seconds")
        self._prompt_length = histogram("vllm:request_prompt_tokens")
        self._output_length = histogram("vllm:request_generation_tokens")
        self._max_tokens = histogram("vllm:request_params_max_tokens")
        self._preempted = histogram("vllm:request_num_preemptions")
        self._computed = histogram("vllm:request_prefill_kv_computed_tokens")

    def prefilled(self, stats: PrefillStats) -> None:
        self._ttft.observe(stats.ttft_s)
        self._prompt.inc(stats.num_prompt_tokens)
        self._cached.inc(stats.num_cached_tokens)
        self._cached_source.inc(stats.num_cached_tokens)
        self._computed_source.inc(stats.num_prompt_tokens - stats.num_cached_tokens)

    def finished(self, stats: FinishedStats) -> None:
        """A duration that the request never reached is not observed, rather than recorded as 0."""
        self.success[stats.finish_reason].inc()
        self._e2e.observe(stats.e2e_s)
        spans = (
            (self._queue, stats.queue_s),
            (self._prefill, stats.prefill_s),
            (self._decode, stats.decode_s),
            (self._inference, stats.inference_s),
            (self._tpot, stats.tpot_s),
            (self._max_tokens, stats.max_tokens_asked),
        )
        for cell, seen in spans:
            if seen is not None:
                cell.observe(seen)
        self._prompt_length.observe(stats.num_prompt_tokens)
        self._output_length.observe(stats.num_output_tokens)
        self._preempted.observe(stats.num_preemptions)
        if stats.prefill_s is not None:
            self._computed.observe(stats.num_prefill_computed_tokens)
