"""The one table of knobs. The engine's CLI, the tuner's search space, the docs and the dashboard
read it; nothing else names a range, a default or what a knob trades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "float", "bool", "choice"]


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of an LLM server.

    low/high bound the default search range (log: searched on a log scale); live says that our
    engine changes it while running; vllm_flag and sglang_flag are the peers' names for it.
    """

    name: str
    kind: Kind
    unit: str
    default_cpu: int | float | bool | str
    default_cuda: int | float | bool | str
    live: bool
    engine_flag: str
    trades: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: tuple[str, ...] = ()
    vllm_flag: str | None = None
    sglang_flag: str | None = None


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
        name="block_size", kind="int", unit="tokens", default_cpu=16, default_cuda=16,
        live=False, low=8, high=128, log=True,
        engine_flag="--block-size", vllm_flag="--block-size", sglang_flag="--page-size",
        trades="larger blocks: shorter block tables, more waste at the end and coarser reuse",
    ),
    Knob(
        name="enable_prefix_caching", kind="bool", unit="", default_cpu=True, default_cuda=True,
        live=False, engine_flag="--enable-prefix-caching", vllm_flag="--enable-prefix-caching",
        sglang_flag=None,
        trades="shared prefixes are computed once; costs hashing and holds free blocks",
    ),
)  # fmt: skip

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _TABLE}

LIVE_KNOBS: tuple[str, ...] = tuple(name for name, knob in KNOBS.items() if knob.live)
"""What our engine changes while it runs, and what a tuner turns unless told otherwise."""

KNOB_ALIASES: dict[str, str] = {"max_num_batched_tokens": "chunk_size"}
"""Peers' names for a knob of the table."""
