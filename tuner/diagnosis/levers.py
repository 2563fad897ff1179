"""The levers the tree proposes: what to turn, which way, what it costs, what binds next.

Written once, because several nodes propose the same lever. knob is a name of engine.knobs wherever
the tuner can turn it; direction "do" is an action outside the server's settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.knobs import obeyed
from tuner.diagnosis.model import Lever

MORE_KV = Lever(
    "gpu_memory_utilization", "up",
    "more KV blocks: more requests run at once, fewer preemptions",
    "less memory left for peaks of activations; too high and the engine fails to start",
    "max_num_seqs, then the device's compute", "raising max_num_seqs: KV is what is short",
)  # fmt: skip
FP8_KV = Lever(
    "kv_cache_dtype fp8", "on",
    "halves the KV bytes per token, so twice the tokens fit",
    "a small loss of accuracy, to be checked with your own prompts",
    "max_num_seqs or compute",
)  # fmt: skip
SHORTER_CONTEXT = Lever(
    "max_model_len", "down",
    "refuses the few long requests that take most of the KV",
    "those requests fail; it gives nothing where no long requests exist",
    will_not_help="where all requests are short: KV is taken by tokens held, not by the limit",
)  # fmt: skip
MORE_REPLICAS = Lever(
    "more replicas", "do", "divides the load", "one more device each", "the router's evenness"
)
FEWER_SEQS = Lever(
    "max_num_seqs", "down",
    "fewer requests compete for KV and bandwidth: fewer preemptions, lower TPOT",
    "the queue grows: TTFT up, throughput down at high load", "the sequence cap",
)  # fmt: skip
MORE_SEQS = Lever(
    "max_num_seqs", "up",
    "waiting requests join the batch: shorter queue, more throughput",
    "each step serves more sequences: TPOT and ITL rise", "KV blocks",
    "lowering TPOT: a larger batch raises it",
)  # fmt: skip
LARGER_CHUNK = Lever(
    "chunk_size", "up",
    "prompts are read in fewer steps: prefill and TTFT fall",
    "decodes wait longer behind each prefill step: ITL rises; more activation memory",
    "compute", "lowering it: a small chunk protects ITL, never TTFT",
)  # fmt: skip
SMALLER_CHUNK = Lever(
    "chunk_size", "down",
    "shorter mixed steps: decodes are interrupted for less time, ITL p99 falls",
    "prompts take more steps: TTFT rises", "TTFT of long prompts",
    "lowering max_num_seqs: the interruption is one prefill, however few decode",
)  # fmt: skip
SHORTER_STEPS = Lever(
    "chunk_size", "down",
    "steps end sooner, so that a new request joins sooner and prompts do not wait for each other",
    "a prompt longer than the chunk takes more steps", "the token budget",
)  # fmt: skip
LESS_ACTIVATION = Lever(
    "chunk_size", "down",
    "frees activation memory, which becomes KV at the next start",
    "prompts take more steps: TTFT rises", "TTFT of long prompts",
)  # fmt: skip
PREFIX_CACHE = Lever(
    "enable_prefix_caching", "on",
    "shared prefixes are computed once: prefill falls by the share of tokens reused",
    "hashing, little; none gained where prompts share nothing", "KV, which holds the prefixes",
)  # fmt: skip
PREFIX_ROUTING = Lever(
    "prefix-aware routing", "do",
    "sends requests with one prefix to one replica, so fewer prefixes compete for each cache",
    "less even load between replicas", "uneven replicas",
)  # fmt: skip
LESS_COMPUTE = Lever(
    "quantization", "on",
    "fewer bits per weight: matrix products and weight reads get cheaper",
    "accuracy, to be checked with your own prompts", "attention, then the host",
)  # fmt: skip
FASTER_DEVICE = Lever(
    "faster device, tensor parallelism or a faster attention kernel", "do",
    "prefill is bound by arithmetic: only more or cheaper arithmetic shortens it",
    "money; tensor parallelism adds communication in every layer", "memory bandwidth in decode",
    "raising max_num_seqs or KV: nothing waits for them",
)  # fmt: skip
FEWER_PROMPT_TOKENS = Lever(
    "fewer prompt tokens to compute, or a faster device", "do",
    "no limit of prefill that can be told is reached: it takes what its tokens take",
    "shorter prompts or shared beginnings are the callers' to send; a device costs money",
    will_not_help="raising max_num_seqs or KV: nothing waits for them",
)  # fmt: skip
HOST = Lever(
    "CUDA graphs (leave --enforce-eager off), a faster host core", "do",
    "the device waits for the host between kernels; graphs launch a step at once",
    "memory for captured graphs", "memory bandwidth",
    "raising max_num_seqs: throughput rises, TPOT does not fall",
)  # fmt: skip
LONG_POOL = Lever(
    "a separate pool or a per-step cap for long prompts", "do",
    "short requests no longer queue behind long prefills: the tail comes down to the median",
    "the long requests themselves wait longer", "evenness between the pools",
    "a faster device: p99 / p50 stays as it is",
)  # fmt: skip
FRONT_END = Lever(
    "API processes and tokenizer (more CPU, --api-server-count)", "do",
    "time before the scheduler and after the last step falls",
    "CPU cores", "the engine itself",
    "engine knobs: the time is lost before and after the engine",
)  # fmt: skip
NETWORK = Lever(
    "network, proxy or client", "do",
    "the server answers in time; what is slow lies between it and the user",
    "none on the server", will_not_help="any server knob",
)  # fmt: skip
SCALE_OR_SHED = Lever(
    "scale out or shed load (--max-num-queued-reqs)", "do",
    "the queue stops growing: more capacity, or early refusals instead of late answers",
    "devices, or refused requests", will_not_help="any knob of this server: it is at its limits",
)  # fmt: skip
DEFERRED = Lever(
    "adapter slots (--max-loras), KV transfers, grammar cache", "do",
    "requests wait for what they need, not for room in the batch",
    "memory for adapters", will_not_help="max_num_seqs, KV and chunk_size",
)  # fmt: skip
LESS_BANDWIDTH = Lever(
    "weight or KV quantization, tensor parallelism, speculative decoding", "do",
    "each decode step reads fewer bytes, or gives more tokens for the same bytes",
    "accuracy (quantization), communication (TP), waste at a low acceptance rate (speculation)",
    "compute", "raising clocks or GPU utilisation: the memory bus is what is full",
)  # fmt: skip
COOLING = Lever(
    "power limit, cooling", "do", "clocks return to their nominal rate", "power, noise",
    will_not_help="engine knobs: the device itself is slowed down",
)  # fmt: skip
CLIENTS = Lever(
    "clients' timeouts and max_tokens", "do",
    "requests end for their own reason instead of being cut off", "longer answers cost tokens",
)  # fmt: skip
SERVER_LOG = Lever(
    "read the server's log", "do",
    "the engine names the failing request and its exception", "none",
    will_not_help="tuning: a failing request does not become faster",
)  # fmt: skip
ROOM_OR_REFUSE = Lever(
    "raise the queue limit or add capacity", "do",
    "fewer requests are refused", "a longer queue: TTFT rises with it",
)  # fmt: skip
UNBLOCK = Lever(
    "stop the request at the head of the queue, restart the engine if nothing moves", "do",
    "a request larger than the KV pool, or one that waits for ever, blocks all behind it",
    "that request fails", will_not_help="waiting: nothing frees the room it asks for",
)  # fmt: skip
SLOW_REPLICA = Lever(
    "the slow replica itself", "do",
    "it serves its share as fast as the others: compare its clocks, its neighbours on the host, "
    "its settings and its version", "its time out of service",
    will_not_help="more load for the others alone: they would carry a replica that is paid for",
)  # fmt: skip
ROUTER = Lever(
    "the router's policy (least loaded, prefix-aware)", "do",
    "load moves from the fullest replica to the others", "fewer prefix hits when it is spread",
    will_not_help="engine knobs: some replicas are idle while others queue",
)  # fmt: skip


def here(acts: tuple[Lever, ...], config: Mapping[str, str]) -> tuple[Lever, ...]:
    """The levers by the knobs that a server of this configuration obeys."""
    return tuple(replace(act, knob=obeyed(act.knob, config)) for act in acts)
