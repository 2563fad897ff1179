"""Work counters by kind of step, and a peak that what was reached can only raise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.core import StepResult
from engine.metrics.engine import EngineMetrics
from engine.metrics.registry import MetricRegistry
from engine.scheduler.plan import BindingLimit
from engine.stats import StepStats
from engine.stats_work import StepWork
from tests.engine.metrics.exposition import Page, read

STATS = StepStats(
    num_running=1, num_waiting=0, num_waiting_deferred=0, kv_usage=0.1, num_free_blocks=1,
    num_cached_blocks=0, num_used_blocks=1, num_scheduled_tokens=1, batch_size=1,
    binding_limit=BindingLimit.UNDERLOADED, num_generated_tokens=1, num_preemptions=0,
    num_preempted_tokens=0, prefix_query_tokens=0, prefix_hit_tokens=0, schedule_s=0.0,
    prepare_s=0.0, forward_s=0.5, sample_s=0.0, postprocess_s=0.0,
)  # fmt: skip


def page_after(*works: StepWork | None, forward_s: float = 0.5) -> Page:
    registry = MetricRegistry(model_name="m", max_model_len=64)
    metrics = EngineMetrics(registry)
    metrics.set_device_peak(flops_per_s=1000.0, bytes_per_s=100.0)
    empty: dict[str, Any] = {"events": [], "prefilled": [], "itl_s": [], "finished": []}
    for work in works:
        stats = replace(STATS, work=work, forward_s=forward_s)
        metrics.on_step(StepResult(stats=stats, **empty), busy_s=forward_s)
    return read(registry.exposition().decode())


def test_work_is_counted_by_kind() -> None:
    page = page_after(StepWork("decode", 60.0, 30.0, 5.0), StepWork("prefill", 200.0, 10.0, 5.0))
    assert page.value("vllm:estimated_flops_per_gpu_total") == 260.0
    assert page.value("vllm:estimated_read_bytes_per_gpu_total") == 40.0
    assert page.value("vllm:estimated_write_bytes_per_gpu_total") == 10.0
    assert page.value("slotune:step_kind_flops_total", kind="decode") == 60.0
    assert page.value("slotune:step_kind_bytes_total", kind="prefill") == 15.0
    assert page.value("slotune:step_kind_seconds_total", kind="mixed") == 0.0
    assert page.value("slotune:device_peak", kind="flops") == 1000.0


def test_a_peak_is_never_below_what_was_reached() -> None:
    page = page_after(StepWork("prefill", 700.0, 30.0, 5.0))
    assert page.value("slotune:device_peak", kind="flops") == 1400.0
    assert page.value("slotune:device_peak", kind="bandwidth") == 100.0


def test_a_step_of_no_time_proves_nothing() -> None:
    page = page_after(StepWork("prefill", 700.0, 900.0, 5.0), forward_s=0.0)
    assert page.value("slotune:device_peak", kind="flops") == 1000.0
