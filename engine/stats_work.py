"""What a step computes and moves, estimated from its shapes: FLOPs and bytes for the roofline.

Counted are matrix products, attention, weights and KV; activations, norms and sampling are left
out: they are small beside those. A weight is read once per step, a sequence's KV once per step in
which it takes part. Estimates, not measurements: caches can make less traffic, never less work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.scheduler.plan import StepPlan

StepKind = Literal["prefill", "decode", "mixed"]


@dataclass(frozen=True, slots=True)
class StepWork:
    """kind: only prompts, only single tokens of running requests, or both."""

    kind: StepKind
    flops: float
    read_bytes: float
    write_bytes: float


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """flops_per_token: all layers' matrix products; flops_per_sample: the output head's;
    flops_per_pair: attention of one query with one key, all layers and heads."""

    flops_per_token: float
    flops_per_sample: float
    flops_per_pair: float
    weight_bytes: float
    kv_bytes_per_token: float

    @classmethod
    def of(
        cls,
        *,
        num_layer_parameters: int,
        hidden_size: int,
        vocab_size: int,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        element_bytes: int,
        kv_bytes_per_token: int,
    ) -> ModelCosts:
        """A multiplication and an addition are two FLOPs; scores and their sum both need them."""
        head = hidden_size * vocab_size
        return cls(
            flops_per_token=2.0 * num_layer_parameters,
            flops_per_sample=2.0 * head,
            flops_per_pair=4.0 * num_layers * num_heads * head_dim,
            weight_bytes=float((num_layer_parameters + head) * element_bytes),
            kv_bytes_per_token=float(kv_bytes_per_token),
        )

    def of_step(self, plan: StepPlan) -> StepWork:
        tokens = pairs = context = samples = decodes = 0
        for share in plan.scheduled:
            count, before = len(share.token_ids), share.num_computed_tokens
            tokens += count
            pairs += count * before + count * (count + 1) // 2
            context += before + count
            samples += share.needs_sample
            decodes += share.num_output_tokens > 0 and count == 1
        kind: StepKind = "mixed"
        if decodes in (0, len(plan.scheduled)):
            kind = "decode" if decodes else "prefill"
        return StepWork(
            kind=kind,
            flops=tokens * self.flops_per_token
            + samples * self.flops_per_sample
            + pairs * self.flops_per_pair,
            read_bytes=self.weight_bytes + context * self.kv_bytes_per_token,
            write_bytes=tokens * self.kv_bytes_per_token,
        )
