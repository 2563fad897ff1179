"""The one table of knobs. The engine's CLI, the tuner's search space, the docs and the dashboard
read it; nothing else names a range, a default or what a knob trades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "float", "bool", "choice"]


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of an LLM server.

    low/high bound the default search range (log: searched on a log scale); live says that our
    engine changes it while running; engine_flag, vllm_flag and sglang_flag are the names of the
    flag, None where that server has none. sglang_inverts: its flag switches off what the knob
    switches on. A default "auto" is one the server works out; choices are the usual words, others
    are handed through. changes_answers: the model computes with other numbers, so its accuracy is
    to be measured anew. replaces: the knob that moves nothing where this one is given.
    """

    name: str
    kind: Kind
    unit: str
    default_cpu: int | float | bool | str
    default_cuda: int | float | bool | str
    live: bool
    engine_flag: str | None
    trades: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[str, ...] = ()
    vllm_flag: str | None = None
    sglang_flag: str | None = None
    sglang_inverts: bool = False
    changes_answers: bool = False
    replaces: str = ""


_TABLE = (
    Knob(
        name="max_num_seqs", kind="int", unit="sequences", default_cpu=128, default_cuda=256,
        live=True, low=4, high=256, log=True,
        engine_flag="--max-num-seqs", vllm_flag="--max-num-seqs",
        sglang_flag="--max-running-requests",
        trades="more sequences per step: throughput up and queue down, TPOT and KV pressure up",
    ),
    Knob(
        name="chunk_size", kind="int", unit="tokens", default_cpu=2048, default_cuda=8192,
        live=True, low=64, high=4096, log=True,
        engine_flag="--chunk-size", vllm_flag="--max-num-batched-tokens",
        sglang_flag="--chunked-prefill-size",
        trades="larger steps: prefill and TTFT faster, running decodes wait longer (ITL up)",
    ),
    Knob(
        name="gpu_memory_utilization", kind="float", unit="share of device memory",
        default_cpu=0.9, default_cuda=0.9, live=True, low=0.5, high=0.95,
        engine_flag="--gpu-memory-utilization", vllm_flag="--gpu-memory-utilization",
        sglang_flag="--mem-fraction-static",
        trades="more KV blocks: fewer preemptions and more cached prefixes, less room for peaks",
    ),
    Knob(
        name="num_gpu_blocks_override", kind="int", unit="blocks", default_cpu="auto",
        default_cuda="auto", live=False, low=16, high=1_000_000, log=True,
        engine_flag="--num-kv-blocks", vllm_flag="--num-gpu-blocks-override",
        replaces="gpu_memory_utilization",
        trades="a KV pool of so many blocks, whatever the memory would allow",
    ),
    Knob(
        name="kv_cache_memory_bytes", kind="int", unit="bytes", default_cpu="auto",
        default_cuda="auto", live=False, low=2**20, high=2**44, log=True,
        engine_flag=None, vllm_flag="--kv-cache-memory-bytes",
        replaces="gpu_memory_utilization",
        trades="a KV pool of this size, whatever share of the memory it is",
    ),
    Knob(
        name="block_size", kind="int", unit="tokens", default_cpu=16, default_cuda=16,
        live=False, low=8, high=128, log=True,
        engine_flag="--block-size", vllm_flag="--block-size", sglang_flag="--page-size",
        trades="larger blocks: shorter block tables, more waste at the end and coarser reuse",
    ),
    Knob(
        name="enable_prefix_caching", kind="bool", unit="", default_cpu=True, default_cuda=True,
        live=False, engine_flag="--enable-prefix-caching", vllm_flag="--enable-prefix-caching",
        sglang_flag="--disable-radix-cache", sglang_inverts=True,
        trades="shared prefixes are computed once; costs hashing and holds free blocks",
    ),
    Knob(
        name="max_model_len", kind="int", unit="tokens", default_cpu="auto", default_cuda="auto",
        live=False, low=256, high=131072, log=True,
        engine_flag="--max-model-len", vllm_flag="--max-model-len",
        sglang_flag="--context-length",
        trades="longer requests are served; a shorter limit lets more be sure of their KV",
    ),
    Knob(
        name="dtype", kind="choice", unit="", default_cpu="auto", default_cuda="auto", live=False,
        changes_answers=True, choices=("auto", "bfloat16", "float16", "float32"),
        engine_flag="--dtype", vllm_flag="--dtype", sglang_flag="--dtype",
        trades="narrower numbers: weights and KV take less memory and bandwidth, accuracy may fall",
    ),
    Knob(
        name="quantization", kind="choice", unit="", default_cpu="auto", default_cuda="auto",
        live=False, changes_answers=True,
        choices=("auto", "fp8", "awq", "gptq", "bitsandbytes"),
        engine_flag=None, vllm_flag="--quantization", sglang_flag="--quantization",
        trades="fewer bits per weight: memory and bandwidth saved; accuracy must be checked",
    ),
    Knob(
        name="kv_cache_dtype", kind="choice", unit="", default_cpu="auto", default_cuda="auto",
        live=False, changes_answers=True,
        choices=("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"),
        engine_flag=None, vllm_flag="--kv-cache-dtype", sglang_flag="--kv-cache-dtype",
        trades="fp8 halves the KV bytes per token, so twice the tokens fit; accuracy may fall",
    ),
    Knob(
        name="enforce_eager", kind="bool", unit="", default_cpu=False, default_cuda=False,
        live=False, engine_flag="--enforce-eager", vllm_flag="--enforce-eager",
        sglang_flag="--disable-cuda-graph",
        trades="no graphs: faster start and more memory for KV; each decode step costs host time",
    ),
    Knob(
        name="tensor_parallel_size", kind="int", unit="devices", default_cpu=1, default_cuda=1,
        live=False, low=1, high=8, log=True,
        engine_flag=None, vllm_flag="--tensor-parallel-size", sglang_flag="--tp-size",
        trades="each layer split over devices: latency down, KV up; communication in every layer",
    ),
    Knob(
        name="pipeline_parallel_size", kind="int", unit="devices", default_cpu=1, default_cuda=1,
        live=False, low=1, high=8, log=True,
        engine_flag=None, vllm_flag="--pipeline-parallel-size", sglang_flag="--pp-size",
        trades="layers spread over devices: larger models fit; latency is not lowered",
    ),
    Knob(
        name="data_parallel_size", kind="int", unit="replicas", default_cpu=1, default_cuda=1,
        live=False, low=1, high=8, log=True,
        engine_flag=None, vllm_flag="--data-parallel-size", sglang_flag="--dp-size",
        trades="more replicas share the load: throughput up, each needs its own memory",
    ),
)  # fmt: skip

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _TABLE}

LIVE_KNOBS: tuple[str, ...] = tuple(name for name, knob in KNOBS.items() if knob.live)
"""What our engine changes while it runs, and what a tuner turns unless told otherwise."""

REPLACING: tuple[str, ...] = tuple(name for name, knob in KNOBS.items() if knob.replaces)
"""Knobs that decide in place of another one, the first one given before all others."""

KNOB_ALIASES: dict[str, str] = {
    "max_num_batched_tokens": "chunk_size",
    "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "chunk_size",
    "mem_fraction_static": "gpu_memory_utilization",
    "page_size": "block_size",
    "context_length": "max_model_len",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
}
"""Peers' names for a knob of the table."""


def obeyed(name: str, config: Mapping[str, object]) -> str:
    """The knob that a server of this configuration obeys where `name` is meant."""
    given = (one for one in REPLACING if KNOBS[one].replaces == name and config.get(one))
    return next(given, name)
