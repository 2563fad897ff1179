"""The one table of metrics: name, type, labels, buckets, help.

Names prefixed `vllm:` mean what they mean in vLLM V1, so that what was made for vLLM works
unchanged; `slotune:` ones are our own. Counters are listed without the exported `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.metrics.buckets import (
    BATCH_SIZE_BUCKETS,
    HTTP_FINE_BUCKETS_S,
    ITERATION_TOKENS_BUCKETS,
    ITL_BUCKETS_S,
    LATENCY_BUCKETS_S,
    LENGTHS,
    STEP_BUCKETS_S,
    TTFT_BUCKETS_S,
)

MetricKind = Literal["counter", "gauge", "histogram", "summary"]

IDENTITY = ("engine", "model_name")
"""Labels of every series of an engine, unless the row says otherwise."""

MODEL_ONLY = ("model_name",)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One row. label is the one extra label, values its values created at 0 from the start."""

    name: str
    kind: MetricKind
    help: str
    label: str | None = None
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] | None = None
    identity: tuple[str, ...] = IDENTITY


FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
WAITING_REASONS = ("capacity", "deferred")
PROMPT_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
REJECTION_REASONS = ("max_num_queued_reqs", "max_num_queued_tokens")
BINDING_LIMITS = ("kv_pressure", "seq_cap", "token_budget", "deferred", "underloaded", "other")
STEP_PHASES = ("schedule", "prepare", "forward", "sample", "postprocess")
STEP_KINDS = ("prefill", "decode", "mixed")
PEAK_KINDS = ("flops", "bandwidth")
BLOCK_STATES = ("free", "cached", "used")
MEMORY_KINDS = ("weights", "kv", "activations", "free")
ABORT_CAUSES = ("client_disconnect", "sibling_refused")


def _latency(name: str, text: str, buckets: tuple[float, ...] = LATENCY_BUCKETS_S) -> MetricSpec:
    return MetricSpec(f"vllm:{name}_seconds", "histogram", text, buckets=buckets)


def _lengths(name: str, text: str) -> MetricSpec:
    return MetricSpec(f"vllm:{name}", "histogram", text, buckets=LENGTHS)


VLLM_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec("vllm:num_requests_running", "gauge", "Requests in the running batch."),
    MetricSpec("vllm:num_requests_waiting", "gauge", "Requests waiting to be scheduled."),
    MetricSpec(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Waiting requests by reason: capacity (no room in the step) or deferred (for now blocked).",
        label="reason",
        values=WAITING_REASONS,
    ),
    MetricSpec(
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of usable KV blocks that requests hold, 0 to 1; evictable cached blocks are free.",
    ),
    MetricSpec(
        "vllm:prefix_cache_queries",
        "counter",
        "Prompt tokens looked up in the prefix cache at first admission.",
    ),
    MetricSpec(
        "vllm:prefix_cache_hits",
        "counter",
        "Prompt tokens found in the prefix cache at first admission.",
    ),
    MetricSpec("vllm:num_preemptions", "counter", "Preemptions of running requests."),
    MetricSpec(
        "vllm:prompt_tokens", "counter", "Prompt tokens of requests whose prefill has finished."
    ),
    MetricSpec("vllm:prompt_tokens_cached", "counter", "Of them, tokens taken from the cache."),
    MetricSpec(
        "vllm:prompt_tokens_by_source",
        "counter",
        "Prompt tokens by where their KV came from.",
        label="source",
        values=PROMPT_SOURCES,
    ),
    MetricSpec("vllm:generation_tokens", "counter", "Generated tokens."),
    MetricSpec(
        "vllm:request_success",
        "counter",
        "Finished requests by the reason they finished for.",
        label="finished_reason",
        values=FINISH_REASONS,
    ),
    MetricSpec(
        "vllm:admission_rejections",
        "counter",
        "Requests refused because a queue limit was reached.",
        label="reason",
        values=REJECTION_REASONS,
        identity=MODEL_ONLY,
    ),
    _latency(
        "time_to_first_token", "Arrival to first token, observed at that token.", TTFT_BUCKETS_S
    ),
    _latency("inter_token_latency", "Time between outputs, observed at each.", ITL_BUCKETS_S),
    _latency(
        "request_time_per_output_token",
        "Mean time per token after the first, of finished requests with at least two.",
        ITL_BUCKETS_S,
    ),
    _latency("e2e_request_latency", "Arrival to end of finished requests."),
    _latency("request_queue_time", "Queued to first scheduled, of finished requests."),
    _latency("request_prefill_time", "First scheduled to first token, of finished requests."),
    _latency("request_decode_time", "First to last token, of finished requests."),
    _latency("request_inference_time", "First scheduled to last token, of finished requests."),
    _lengths("request_prompt_tokens", "Prompt tokens of finished requests."),
    _lengths("request_generation_tokens", "Generated tokens of finished requests."),
    _lengths("request_max_num_generation_tokens", "Most tokens any output of a request had."),
    _lengths("request_params_max_tokens", "The max_tokens of finished requests."),
    _lengths(
        "request_prefill_kv_computed_tokens",
        "Tokens computed before the first output, those again after a preemption included.",
    ),
    MetricSpec(
        "vllm:request_params_n",
        "histogram",
        "The n of finished requests.",
        buckets=(1.0, 2.0, 5.0, 10.0, 20.0),
    ),
    MetricSpec(
        "vllm:request_num_preemptions",
        "histogram",
        "Preemptions each finished request has suffered.",
        buckets=(1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
    ),
    MetricSpec(
        "vllm:iteration_tokens_total",
        "histogram",
        "Tokens computed in each step.",
        buckets=ITERATION_TOKENS_BUCKETS,
    ),
)

VLLM_OPTIONAL_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "vllm:estimated_flops_per_gpu",
        "counter",
        "FLOPs of all steps, estimated from their shapes.",
    ),
    MetricSpec(
        "vllm:estimated_read_bytes_per_gpu",
        "counter",
        "Bytes of weights and KV read in all steps, estimated from their shapes.",
    ),
    MetricSpec(
        "vllm:estimated_write_bytes_per_gpu",
        "counter",
        "Bytes of KV written in all steps, estimated from their shapes.",
    ),
)
"""What vLLM exports only when asked to (--enable-mfu-metrics)."""

OWN_METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "slotune:step_duration_seconds",
        "histogram",
        "Duration of each phase of a step.",
        label="phase",
        values=STEP_PHASES,
        buckets=STEP_BUCKETS_S,
    ),
    MetricSpec(
        "slotune:step_kind_seconds",
        "counter",
        "Time the model computed, by what the step held: prompts, running requests, or both.",
        label="kind",
        values=STEP_KINDS,
    ),
    MetricSpec(
        "slotune:step_kind_flops",
        "counter",
        "Estimated FLOPs, by what the step held.",
        label="kind",
        values=STEP_KINDS,
    ),
    MetricSpec(
        "slotune:step_kind_bytes",
        "counter",
        "Estimated bytes read and written, by what the step held.",
        label="kind",
        values=STEP_KINDS,
    ),
    MetricSpec(
        "slotune:device_peak",
        "gauge",
        "The device's peak: FLOP/s of dense matrix products, bytes/s of memory; 0 is not known.",
        label="kind",
        values=PEAK_KINDS,
    ),
    MetricSpec(
        "slotune:step_binding_limit",
        "counter",
        "Steps by what kept them from doing more.",
        label="reason",
        values=BINDING_LIMITS,
    ),
    MetricSpec(
        "slotune:engine_busy_seconds", "counter", "Time the loop worked, in steps and between."
    ),
    MetricSpec("slotune:engine_idle_seconds", "counter", "Time the loop waited for requests."),
    MetricSpec(
        "slotune:kv_blocks",
        "gauge",
        "KV blocks by state; cached ones hold a reusable prefix and can be evicted.",
        label="state",
        values=BLOCK_STATES,
    ),
    MetricSpec(
        "slotune:batch_size",
        "histogram",
        "Sequences in each step.",
        buckets=BATCH_SIZE_BUCKETS,
    ),
    MetricSpec(
        "slotune:preempted_tokens", "counter", "Computed tokens that preemptions threw away."
    ),
    MetricSpec(
        "slotune:aborted_requests",
        "counter",
        "Requests aborted before their end, by cause.",
        label="cause",
        values=ABORT_CAUSES,
    ),
    MetricSpec(
        "slotune:device_memory_bytes",
        "gauge",
        "Device memory that the engine may use, by what holds it.",
        label="kind",
        values=MEMORY_KINDS,
    ),
)

CACHE_CONFIG_INFO = "vllm:cache_config_info"
SCHEDULER_CONFIG_INFO = "slotune:scheduler_config_info"

INFO_HELP = {
    CACHE_CONFIG_INFO: "The KV cache's configuration, as labels.",
    SCHEDULER_CONFIG_INFO: "The scheduler's configuration, as labels; follows live changes.",
}

HTTP_REQUESTS = MetricSpec(
    "http_requests", "counter", "HTTP requests by method, status and handler.", identity=()
)
HTTP_REQUEST_SIZE = MetricSpec(
    "http_request_size_bytes", "summary", "Content-Length of requests by handler.", identity=()
)
HTTP_RESPONSE_SIZE = MetricSpec(
    "http_response_size_bytes",
    "summary",
    "Content-Length of responses by handler; 0 for streams.",
    identity=(),
)
HTTP_DURATION_FINE = MetricSpec(
    "http_request_duration_highr_seconds",
    "histogram",
    "Duration of HTTP requests until the last byte, in many buckets, over all handlers.",
    buckets=HTTP_FINE_BUCKETS_S,
    identity=(),
)
HTTP_DURATION = MetricSpec(
    "http_request_duration_seconds",
    "histogram",
    "Duration of HTTP requests until the last byte, by handler.",
    buckets=(0.1, 0.5, 1.0),
    identity=(),
)
HTTP_METRICS = (
    HTTP_REQUESTS,
    HTTP_REQUEST_SIZE,
    HTTP_RESPONSE_SIZE,
    HTTP_DURATION_FINE,
    HTTP_DURATION,
)
