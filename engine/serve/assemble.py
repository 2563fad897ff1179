"""Puts scheduler, engine loop, metrics, knobs and tokenizer together around a loaded runner."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig, SchedulerConfig
from engine.core import EngineCore
from engine.metrics.engine import EngineMetrics
from engine.metrics.http import HttpMetrics
from engine.metrics.registry import MetricRegistry
from engine.scheduler import Scheduler
from engine.serve.admin import Bounds, KnobValues, LiveKnobs
from engine.serve.options import ServeOptions
from engine.serve.service import Service
from engine.stats_work import ModelCosts
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.runner import ModelRunner


def assemble(
    config: EngineConfig,
    options: ServeOptions,
    runner: ModelRunner,
    tokenizer: Tokenizer,
    *,
    name: str,
    clock: Callable[[], float] = time.monotonic,
) -> Service:
    """The service of a loaded model; EngineConfigError when the settings do not fit the model."""
    scheduler_config = _scheduler_config(config, runner)
    scheduler = Scheduler(scheduler_config, runner.model_info.eos_token_ids, clock)
    registry = MetricRegistry(model_name=name, max_model_len=scheduler_config.max_model_len)
    metrics = EngineMetrics(registry)
    engine = AsyncEngine(EngineCore(scheduler, runner, clock, _costs(runner)), metrics, clock=clock)
    knobs = _live_knobs(config, runner, scheduler)
    service = Service(
        config=config,
        engine=engine,
        tokenizer=tokenizer,
        registry=registry,
        http_metrics=HttpMetrics(registry),
        knobs=knobs,
        served_model_name=name,
        max_model_len=scheduler_config.max_model_len,
        vocab_size=runner.model_info.vocab_size,
        facts=_facts(runner),
        api_key=options.api_key,
        enable_admin=options.enable_admin,
    )
    _publish_constants(service, runner, metrics)
    return service


def _costs(runner: ModelRunner) -> ModelCosts:
    info = runner.model_info
    return ModelCosts.of(
        num_layer_parameters=info.num_layer_parameters,
        hidden_size=info.hidden_size,
        vocab_size=info.vocab_size,
        num_layers=info.num_layers,
        num_heads=info.num_heads,
        head_dim=info.head_dim,
        element_bytes=info.element_bytes,
        kv_bytes_per_token=runner.memory.kv_bytes_per_token,
    )


def _scheduler_config(config: EngineConfig, runner: ModelRunner) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=config.max_num_seqs,
        chunk_size=config.chunk_size,
        max_model_len=config.model_len(runner.model_info.max_model_len),
        block_size=config.block_size,
        num_kv_blocks=runner.memory.num_kv_blocks,
        kv_blocks_cap=runner.num_kv_blocks_at(config.gpu_memory_utilization),
        enable_prefix_caching=config.enable_prefix_caching,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        max_num_queued_reqs=config.max_num_queued_reqs,
    )


def _live_knobs(config: EngineConfig, runner: ModelRunner, scheduler: Scheduler) -> LiveKnobs:
    highest = config.gpu_memory_utilization_limit or config.gpu_memory_utilization
    needed = -(-scheduler.config.max_model_len // config.block_size)
    return LiveKnobs(
        scheduler,
        KnobValues(config.max_num_seqs, config.chunk_size, config.gpu_memory_utilization),
        {
            "max_num_seqs": Bounds(1, config.max_num_seqs_limit),
            "chunk_size": Bounds(1, config.chunk_size_limit),
            "gpu_memory_utilization": Bounds(_lowest_utilization(runner, needed, highest), highest),
        },
        runner.num_kv_blocks_at,
    )


def _lowest_utilization(runner: ModelRunner, needed_blocks: int, highest: float) -> float:
    """The lowest share, in hundredths, whose KV pool holds one request of max_model_len."""
    hundredths = range(1, int(highest * 100) + 1)
    fitting = (u / 100 for u in hundredths if runner.num_kv_blocks_at(u / 100) >= needed_blocks)
    return next(fitting, highest)


def _facts(runner: ModelRunner) -> dict[str, Any]:
    """The constant, runner-known fields of /server_info."""
    memory = dataclasses.asdict(runner.memory)
    return {
        "architecture": runner.model_info.architecture,
        "num_parameters": runner.model_info.num_parameters,
        "device": runner.device_name,
        "dtype": runner.model_info.dtype,
        "num_kv_blocks": runner.memory.num_kv_blocks,
        "kv_bytes_per_token": runner.memory.kv_bytes_per_token,
        "memory": {key: value for key, value in memory.items() if key.endswith("_bytes")},
        "attention_backend": runner.attention_backend,
        "num_threads": runner.num_threads,
    }


def _publish_constants(service: Service, runner: ModelRunner, metrics: EngineMetrics) -> None:
    """The metrics that say how the engine is configured, now and after each live change."""
    memory = runner.memory
    metrics.set_memory(
        weights=memory.weights_bytes,
        kv=memory.kv_cache_bytes,
        activations=memory.activation_bytes,
        total=memory.device_memory_bytes,
    )
    peak = runner.device_peak()
    metrics.set_device_peak(flops_per_s=peak.flops_per_s, bytes_per_s=peak.bytes_per_s)

    def publish(values: KnobValues, kv_blocks: int) -> None:
        tokens = kv_blocks * service.config.block_size
        metrics.set_cache_config(
            block_size=service.config.block_size,
            num_gpu_blocks=kv_blocks,
            gpu_memory_utilization=values.gpu_memory_utilization,
            cache_dtype=runner.model_info.dtype,
            enable_prefix_caching=service.config.enable_prefix_caching,
            kv_cache_memory_bytes=None,  # vLLM's setting of the size, which this engine lacks
            kv_cache_size_tokens=tokens,
            kv_cache_max_concurrency=round(tokens / service.max_model_len, 2),
            num_gpu_blocks_override=service.config.num_kv_blocks,
        )
        metrics.set_scheduler_config(
            max_num_seqs=values.max_num_seqs,
            chunk_size=values.chunk_size,
            policy="fcfs",
            dtype=runner.model_info.dtype,
            quantization="none",
            threads=runner.num_threads,
            attention_backend=runner.attention_backend,
        )

    publish(service.knobs.values, service.knobs.kv_blocks_cap)
    service.knobs.on_change = publish
