"""The signals registry: name, unit, kind of question, and the metric per engine dialect.

Names are tried in order against what the target exports now, so a rename never empties a panel;
capability follows from the exposition, never from a version string.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.diagnosis.specs import (
    DIALECTS,
    SHARE_LEAST,
    BreakdownSpec,
    Dialect,
    SignalSpec,
    quantile_least,
)

__all__ = [
    "BREAKDOWNS", "DIALECTS", "LATENCIES", "QUANTILES", "SIGNALS", "SPECS", "BreakdownSpec",
    "Dialect", "SignalSpec", "dialect_of", "how_to_get", "latency_specs", "min_samples", "observed",
    "quantile_name",
]  # fmt: skip

_MFU = "start the engine so that it exports its estimates (vLLM: --enable-mfu-metrics)"
_PEAK = "give the device's peak: --peak flops=9.9e14,bandwidth=3.3e12, of its data sheet"
_DCGM = "let Prometheus also scrape dcgm-exporter for this device"
_VIOLATIONS = "; its counters file leaves DCGM_FI_DEV_POWER_VIOLATION and _THERMAL_VIOLATION out"
_DEVICES = "Hostname,UUID,gpu"
_ENGINE = "use an engine version that exports it; no other signal stands for it"
_RESIDENCY = "start vLLM with --kv-cache-metrics; it follows one block in a hundred"

LATENCIES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ttft": (("vllm:time_to_first_token_seconds",), ("sglang:time_to_first_token_seconds",)),
    "itl": (
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    ),
    "tpot": (
        ("vllm:request_time_per_output_token_seconds",),
        ("sglang:request_time_per_output_token_seconds",),
    ),
    "e2e": (("vllm:e2e_request_latency_seconds",), ("sglang:e2e_request_latency_seconds",)),
    "queue": (("vllm:request_queue_time_seconds",), ("sglang:queue_time_seconds",)),
    "prefill": (
        ("vllm:request_prefill_time_seconds",),
        ("sglang:per_stage_req_latency_seconds",),
    ),
    "inference": (("vllm:request_inference_time_seconds",), ()),
}
"""Histograms in seconds; each gives NAME (the mean) and NAME_p50, _p95, _p99."""

_STAGE = {"sglang:per_stage_req_latency_seconds": {"stage": "prefill_forward"}}

QUANTILES = (0.5, 0.95, 0.99)


def quantile_name(metric: str, q: float) -> str:
    """ "ttft", 0.95 → "ttft_p95"; 0.999 → "ttft_p99.9"."""
    return f"{metric}_p{round(q * 100, 6):g}"


def latency_specs(metric: str, quantiles: tuple[float, ...] = QUANTILES) -> tuple[SignalSpec, ...]:
    vllm, sglang = LATENCIES[metric]
    mean = SignalSpec(metric, "s", "mean", vllm, sglang, how_to_get=_ENGINE, only=_STAGE)
    return (
        mean,
        *(SignalSpec(quantile_name(metric, q), "s", "quantile", vllm, sglang, q=q,
                     how_to_get=_ENGINE, only=_STAGE) for q in quantiles),
    )  # fmt: skip


def _prompt(q: float) -> SignalSpec:
    return SignalSpec(
        quantile_name("prompt_tokens", q), "tokens", "quantile",
        ("vllm:request_prompt_tokens",), ("sglang:prompt_tokens_histogram",), q=q,
    )  # fmt: skip


_GAUGES: tuple[SignalSpec, ...] = (
    SignalSpec(
        "running", "requests", "gauge_sum",
        ("vllm:num_requests_running",), ("sglang:num_running_reqs",), how_to_get=_ENGINE,
    ),
    SignalSpec(
        "waiting", "requests", "gauge_sum",
        ("vllm:num_requests_waiting",), ("sglang:num_queue_reqs",), how_to_get=_ENGINE,
    ),
    SignalSpec(
        "kv_usage", "share", "gauge_max",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), ("sglang:token_usage",),
        how_to_get=_ENGINE,
    ),
    SignalSpec(
        "peak_flops", "FLOP/s", "gauge_max", ("slotune:device_peak",), (), {"kind": "flops"},
        how_to_get=_PEAK,
    ),
    SignalSpec(
        "peak_bytes", "B/s", "gauge_max", ("slotune:device_peak",), (), {"kind": "bandwidth"},
        how_to_get=_PEAK,
    ),
    SignalSpec(
        "device_active", "share", "gauge_max", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "sglang:fwd_occupancy"), how_to_get=_DCGM,
    ),
    SignalSpec("kv_pool_tokens", "tokens", "gauge_max", (), ("sglang:max_total_num_tokens",)),
    SignalSpec("kv_page_tokens", "tokens", "gauge_max", (), ("sglang:page_size",)),
)  # fmt: skip

_COUNTERS: tuple[SignalSpec, ...] = (
    SignalSpec(
        "preemptions", "events", "increase",
        ("vllm:num_preemptions_total",), ("sglang:num_retracted_requests_total",),
        how_to_get=_ENGINE, beside="sglang:full_token_usage",
    ),
    SignalSpec(
        "finished", "requests", "increase",
        ("vllm:request_success_total",), ("sglang:num_requests_total",), how_to_get=_ENGINE,
    ),
    SignalSpec(
        "rejections", "requests", "increase", ("vllm:admission_rejections_total",), (),
        how_to_get="vLLM exports it from 0.32 on; a proxy's 503 count shows the same",
    ),
    SignalSpec(
        "aborted", "requests", "increase", (), ("sglang:num_aborted_requests_total",),
        how_to_get="vLLM and slotune tell it by finished_reason",
        beside="sglang:num_requests_total",
    ),
    SignalSpec(
        "generated", "tokens", "increase", ("vllm:generation_tokens_total",),
        ("sglang:realtime_tokens_total", "sglang:generation_tokens_total"),
        only={"sglang:realtime_tokens_total": {"mode": "decode"}}, how_to_get=_ENGINE,
    ),
    SignalSpec(
        "prompted", "tokens", "increase",
        ("vllm:prompt_tokens_total",), ("sglang:prompt_tokens_total",), how_to_get=_ENGINE,
    ),
    SignalSpec(
        "prefix_queries", "tokens", "increase",
        ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        ("sglang:prompt_tokens_total",),
    ),
    SignalSpec(
        "prefix_hits", "tokens", "increase",
        ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        ("sglang:cached_tokens_total",), beside="sglang:num_requests_total",
    ),
    SignalSpec("busy_s", "s", "increase", ("slotune:engine_busy_seconds_total",)),
    SignalSpec(
        "idle_s", "s", "increase",
        ("slotune:engine_idle_seconds_total",), ("sglang:scheduler_idle_seconds_total",),
    ),
    SignalSpec(
        "flops", "FLOP/s", "rate", ("vllm:estimated_flops_per_gpu_total",),
        ("sglang:estimated_flops_per_gpu_total",), how_to_get=_MFU,
    ),
    SignalSpec(
        "read_bytes", "B/s", "rate", ("vllm:estimated_read_bytes_per_gpu_total",),
        ("sglang:estimated_read_bytes_per_gpu_total",), how_to_get=_MFU,
    ),
    SignalSpec(
        "write_bytes", "B/s", "rate", ("vllm:estimated_write_bytes_per_gpu_total",),
        ("sglang:estimated_write_bytes_per_gpu_total",), how_to_get=_MFU,
    ),
    SignalSpec(
        "power_throttle", "ns/s", "rate_max", ("DCGM_FI_DEV_POWER_VIOLATION",),
        ("DCGM_FI_DEV_POWER_VIOLATION",), by=_DEVICES, how_to_get=_DCGM + _VIOLATIONS,
    ),
    SignalSpec(
        "thermal_throttle", "ns/s", "rate_max", ("DCGM_FI_DEV_THERMAL_VIOLATION",),
        ("DCGM_FI_DEV_THERMAL_VIOLATION",), by=_DEVICES, how_to_get=_DCGM + _VIOLATIONS,
    ),
)  # fmt: skip

_SIZES: tuple[SignalSpec, ...] = (
    SignalSpec(
        "step_tokens", "tokens", "mean", ("vllm:iteration_tokens_total",), how_to_get=_ENGINE
    ),
    *(
        SignalSpec(
            quantile_name("step_tokens", q), "tokens", "quantile",
            ("vllm:iteration_tokens_total",), q=q, how_to_get=_ENGINE,
        )
        for q in (0.5, 0.9, 0.99)
    ),
    SignalSpec(
        "prompt_tokens", "tokens", "mean",
        ("vllm:request_prompt_tokens",), ("sglang:prompt_tokens_histogram",),
    ),
    _prompt(0.5),
    _prompt(0.99),
    SignalSpec(
        "answer_tokens", "tokens", "mean", ("vllm:request_generation_tokens",),
        ("sglang:generation_tokens_histogram",), how_to_get=_ENGINE,
    ),
    SignalSpec(
        "asked_tokens", "tokens", "mean", ("vllm:request_params_max_tokens",), how_to_get=_ENGINE,
    ),
    *(SignalSpec(quantile_name(name, q), "s", "quantile", (f"vllm:kv_block_{metric}_seconds",), q=q,
                 how_to_get=_RESIDENCY)
      for name, metric, q in (
          ("reuse_gap", "reuse_gap", 0.9), ("evict_idle", "idle_before_evict", 0.5))),
)  # fmt: skip

SPECS: tuple[SignalSpec, ...] = (
    *_GAUGES,
    *_COUNTERS,
    *_SIZES,
    *(spec for metric in LATENCIES for spec in latency_specs(metric)),
)

BREAKDOWNS: tuple[BreakdownSpec, ...] = (
    BreakdownSpec(
        "finished_by", "requests", "finished_reason", True, ("vllm:request_success_total",),
        how_to_get=_ENGINE, min_samples=SHARE_LEAST,
    ),
    BreakdownSpec(
        "waiting_by", "requests", "reason", False, ("vllm:num_requests_waiting_by_reason",),
        how_to_get="vLLM exports it from 0.20 on, and slotune's engine",
    ),
    BreakdownSpec(
        "binding", "steps", "reason", True, ("slotune:step_binding_limit_total",),
        how_to_get="only slotune's engine counts it",
    ),
    BreakdownSpec(
        "kv_blocks", "blocks", "state", False, ("slotune:kv_blocks",),
        how_to_get="only slotune's engine tells cached blocks from free ones",
    ),
    *(
        BreakdownSpec(
            f"kind_{what}", unit, "kind", True, (f"slotune:step_kind_{metric}_total",),
            how_to_get="only slotune's engine counts work by what a step holds",
        )
        for what, unit, metric in (
            ("s", "s", "seconds"), ("flops", "FLOP", "flops"), ("bytes", "B", "bytes")
        )
    ),
    BreakdownSpec(
        "phase_s", "s", "phase", True, ("slotune:step_duration_seconds_sum",),
        how_to_get="only slotune's engine times its phases",
    ),
)  # fmt: skip

SIGNALS: Mapping[str, SignalSpec | BreakdownSpec] = {
    **{spec.name: spec for spec in SPECS},
    **{split.name: split for split in BREAKDOWNS},
}
"""Signals and breakdowns by name."""

_CLIENT = "run `tuner bench URL` from where the clients are, and name its --database here"
_HOW_TO_GET = (
    {spec.name: spec.how_to_get for spec in SPECS}
    | {split.name: split.how_to_get for split in BREAKDOWNS}
    | dict.fromkeys(("client_ttft", "client_server_ttft"), _CLIENT)
)


_OBSERVED = {
    **dict.fromkeys(LATENCIES, "requests"), "itl": "gaps", "step_tokens": "steps",
    **dict.fromkeys(("prompt_tokens", "answer_tokens", "asked_tokens"), "requests"),
    **dict.fromkeys(("client_ttft", "client_server_ttft"), "requests"),
    "reuse_gap": "reuses", "evict_idle": "evictions",
}  # fmt: skip


def observed(name: str) -> str:
    """What a signal's observations are, of a mean or a quantile; "" for what is no histogram."""
    return _OBSERVED.get(name) or _OBSERVED.get(name.rpartition("_p")[0], "")


_LEAST = {spec.name: spec.min_samples for spec in SPECS} | {
    split.name: split.min_samples for split in BREAKDOWNS
}


def min_samples(name: str) -> int:
    """As SignalSpec and BreakdownSpec have it, also of a quantile that only an SLO names."""
    if name in _LEAST:
        return _LEAST[name]
    metric, _, percent = name.rpartition("_p")
    return quantile_least(float(percent) / 100) if metric in LATENCIES else 0


def how_to_get(name: str) -> str:
    """What an operator does to have the signal; "" for one the registry does not know."""
    return _HOW_TO_GET.get(name, "")


def dialect_of(names: frozenset[str]) -> Dialect | None:
    """The dialect of an exposition by what it exports; None where no engine's metric is there."""
    for dialect in DIALECTS:
        if any(name.startswith(f"{dialect}:") for name in names):
            return dialect
    return None
