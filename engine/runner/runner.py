"""Loads a model, sizes its KV cache and executes StepPlans.

Invariant: a step's result depends on its plan and the cache alone; the runner keeps nothing of a
sequence between steps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from engine.attention import registry
from engine.attention.base import AttentionShape
from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.layers.rotary import RotaryTable
from engine.models import config as model_config
from engine.models import loader
from engine.models.llama import Llama
from engine.models.locate import locate
from engine.runner.device import choose
from engine.runner.inputs import build_batch
from engine.runner.memory import (
    GIB,
    MemoryPlan,
    blocks_within,
    device_memory_bytes,
    measure_peak_bytes,
)
from engine.runner.peak import DevicePeak, device_peak
from engine.sampling.logprobs import SCORED_ROWS, SampledRows, score_prompts
from engine.sampling.sampler import Sampler
from engine.sampling_params import SamplingParams
from engine.scheduler.plan import BindingLimit, ScheduledSeq, StepOutput, StepPlan

PROFILE_LAYERS = 2
"""Layers of the measured step: each needs the same memory, and returns it to the next."""

PROFILE_CONTEXT_TOKENS = 256
"""Length of the sequences of the measured step: long enough for attention, short to compute."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the rest of the engine may know of the model."""

    architecture: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    dtype: str
    num_parameters: int
    num_layer_parameters: int
    element_bytes: int


class ModelRunner:
    """The real Runner: see engine.core.Runner."""

    def __init__(self, config: EngineConfig) -> None:
        self.engine_config = config
        self.device = choose(config.device)
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        path = locate(config.model)
        self.config = model_config.read(path)
        self.dtype = _dtype(config.dtype, self.device, self.config)
        named = (
            (name, weight.to(self.device))
            for name, weight in loader.weights(path, self.config, self.dtype)
        )
        with torch.inference_mode():
            self.model = Llama(self.config, named)
            max_len = config.max_model_len or self.config.max_model_len
            rotary = RotaryTable(self.config, max_len, self.device)
            shape = AttentionShape(self.config, config.block_size, self.dtype, self.device, rotary)
            self.attention = registry.choose(config.attention_backend, shape)
            self.sampler = Sampler(config.seed, self.config.eos_token_ids)
            self._caches: list[torch.Tensor] = []
            self.memory = self._allocate()

    # -- facts -------------------------------------------------------------------------------

    @property
    def model_info(self) -> ModelInfo:
        config = self.config
        tables = 1 if config.tie_word_embeddings else 2
        embeddings = tables * config.vocab_size * config.hidden_size
        return ModelInfo(
            architecture=config.family,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            max_model_len=config.max_model_len,
            eos_token_ids=config.eos_token_ids,
            dtype=str(self.dtype).removeprefix("torch."),
            num_parameters=self.model.num_parameters,
            num_layer_parameters=self.model.num_parameters - embeddings,
            element_bytes=self.dtype.itemsize,
        )

    def device_peak(self) -> DevicePeak:
        """The device's roofs; takes a fraction of a second where they must be measured."""
        return device_peak(self.device, self.dtype)

    @property
    def device_name(self) -> str:
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        return "cpu"

    @property
    def attention_backend(self) -> str:
        return self.attention.name

    @property
    def num_threads(self) -> int:
        return torch.get_num_threads()

    def num_kv_blocks_at(self, gpu_memory_utilization: float) -> int:
        """KV blocks that a share of device memory gives, at most those allocated."""
        if self.engine_config.num_kv_blocks is not None:
            return self.memory.num_kv_blocks
        memory = self.memory
        block_bytes = memory.kv_bytes_per_token * self.engine_config.block_size
        taken = memory.weights_bytes + memory.activation_bytes
        fitting = blocks_within(
            gpu_memory_utilization, memory.device_memory_bytes, taken, block_bytes
        )
        return min(memory.num_kv_blocks, fitting)

    # -- work --------------------------------------------------------------------------------

    def execute(self, plan: StepPlan) -> StepOutput:
        """One step: inputs, forward, sample. Durations in seconds."""
        if not plan.scheduled:
            return StepOutput({})
        began = time.perf_counter()
        with torch.inference_mode():
            batch = build_batch(plan.scheduled, self.engine_config.block_size, self.device)
            prepared = time.perf_counter()
            x = self.model.forward(batch, self._caches, self.attention)
            hidden = self.model.hidden(x, batch.sample_rows)
            logits = self.model.logits(hidden)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            forwarded = time.perf_counter()
            wanted = [share for share in plan.scheduled if share.needs_sample]
            told = SampledRows(logits, hidden, wanted)
            tokens = self.sampler.sample(logits, wanted) if wanted else []
            logprobs = told.score(self.model, tokens)
            prompt_logprobs = score_prompts(self.model, x, plan.scheduled)
        sampled = {share.seq_id: token for share, token in zip(wanted, tokens, strict=True)}
        return StepOutput(
            sampled,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            prepare_s=prepared - began,
            forward_s=forwarded - prepared,
            sample_s=time.perf_counter() - forwarded,
        )

    def warmup(self) -> None:
        """Run the shapes that come first, so that the first request does not pay for set-up."""
        for num_seqs, num_tokens in ((1, 1), (1, 16), (min(8, self._max_num_seqs), 1)):
            self.execute(self._synthetic_plan(num_seqs, num_tokens))

    # -- memory ------------------------------------------------------------------------------

    def _allocate(self) -> MemoryPlan:
        """Measure activations, size the KV cache, allocate it."""
        config = self.engine_config
        total = device_memory_bytes(self.device, config.device_memory_bytes)
        per_token = self.config.kv_bytes_per_token(self.dtype.itemsize)
        block_bytes = per_token * config.block_size
        activations = self._measure_activations()
        taken = self.model.weights_bytes + activations
        limit = config.gpu_memory_utilization_limit or config.gpu_memory_utilization
        blocks = config.num_kv_blocks or blocks_within(limit, total, taken, block_bytes)
        start_blocks = config.num_kv_blocks or blocks_within(
            config.gpu_memory_utilization, total, taken, block_bytes
        )
        self._require_room(start_blocks, total, activations)
        self._caches = [self.attention.allocate(blocks) for _ in range(self.config.num_layers)]
        return MemoryPlan(
            device_memory_bytes=total,
            weights_bytes=self.model.weights_bytes,
            activation_bytes=activations,
            kv_bytes_per_token=per_token,
            kv_cache_bytes=blocks * block_bytes,
            num_kv_blocks=blocks,
        )

    def _require_room(self, blocks: int, total: int, activations: int) -> None:
        """One sequence of max_model_len must fit, unless the user chose the number of blocks."""
        config = self.engine_config
        tokens = blocks * config.block_size
        max_model_len = config.max_model_len or self.config.max_model_len
        if blocks >= 1 and (config.num_kv_blocks is not None or tokens >= max_model_len):
            return
        raise EngineConfigError(
            f"memory is left for {tokens} tokens of KV cache, a sequence of --max-model-len needs "
            f"{max_model_len}: {config.gpu_memory_utilization:g} of {total / GIB:.2f} GiB, less "
            f"{self.model.weights_bytes / GIB:.2f} GiB of weights and {activations / GIB:.2f} GiB "
            "of activations; raise --gpu-memory-utilization or --device-memory, or lower "
            "--max-model-len, --chunk-size-limit or --max-num-seqs-limit"
        )

    def _measure_activations(self) -> int:
        """Peak bytes of the largest prefill, decode and prompt-scoring steps."""
        config = self.engine_config
        length = min(PROFILE_CONTEXT_TOKENS, config.max_model_len or self.config.max_model_len)
        prefill_seqs = max(1, config.chunk_size_limit // length)
        blocks_each = -(-length // config.block_size)
        self._caches = [self.attention.allocate(blocks_each)] * PROFILE_LAYERS
        prefill = self._synthetic_plan(prefill_seqs, length)
        decode = self._synthetic_plan(config.max_num_seqs_limit, 1, temperature=1.0)
        scoring = self._synthetic_plan(1, min(length, SCORED_ROWS), scored=True)

        def largest_steps() -> None:
            self.execute(prefill)
            self.execute(decode)
            self.execute(scoring)

        peak = measure_peak_bytes(self.device, largest_steps)
        self._caches = []
        return peak

    def _synthetic_plan(
        self, num_seqs: int, num_tokens: int, temperature: float = 0.0, *, scored: bool = False
    ) -> StepPlan:
        """A step of equal sequences that all write to the first blocks: for set-up only."""
        blocks = tuple(range(-(-num_tokens // self.engine_config.block_size)))
        share = ScheduledSeq(
            seq_id=0,
            num_computed_tokens=0,
            token_ids=(0,) * num_tokens,
            block_table=blocks,
            needs_sample=True,
            sampling=SamplingParams(temperature=temperature),
            num_output_tokens=0,
            prompt_targets=(0,) * num_tokens if scored else (),
        )
        return StepPlan((share,) * num_seqs, num_seqs * num_tokens, BindingLimit.OTHER)

    @property
    def _max_num_seqs(self) -> int:
        return self.engine_config.max_num_seqs_limit


def _dtype(name: str, device: torch.device, config: model_config.ModelConfig) -> torch.dtype:
    """auto: the model's own precision, where the device computes in it; else bfloat16."""
    if name == "auto":
        name = config.torch_dtype
        if name not in ("bfloat16", "float16", "float32") or device.type == "cpu":
            name = "bfloat16"
    if name == "float16" and device.type == "cpu":
        raise EngineConfigError("--dtype float16 is for GPUs; on a CPU use bfloat16 or float32")
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    return dtype[name]
