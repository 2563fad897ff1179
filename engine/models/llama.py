"""The Llama family's decoder (Touvron et al. 2023): SmolLM2, Llama, Qwen2, Qwen3.

Reads like the paper; what differs between families is a bias and two head norms. Inference only:
weights are plain tensors, the KV cache and the step's batch are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.attention.base import AttentionBackend, HeadNorms, StepBatch
from engine.errors import EngineConfigError
from engine.layers.linear import Linear
from engine.layers.norm import RMSNorm
from engine.models.config import ModelConfig

Weights = dict[str, torch.Tensor]

TOP_LOGITS = 8
"""How many of the highest logits are recomputed in float32."""


class DecoderLayer:
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig) -> None:
        def take(name: str) -> torch.Tensor:
            return _take(weights, f"{prefix}.{name}")

        def merged(*names: str, what: str) -> torch.Tensor:
            return torch.cat([take(f"self_attn.{name}_proj.{what}") for name in names])

        bias = merged("q", "k", "v", what="bias") if config.qkv_bias else None
        weight = merged("q", "k", "v", what="weight")
        rows = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        if weight.shape != (rows, config.hidden_size):
            raise EngineConfigError(
                f"the weights do not fit the configuration: {prefix} has q, k and v of "
                f"{tuple(weight.shape)} together, {(rows, config.hidden_size)} are configured"
            )
        self.qkv = Linear(weight, bias)
        self.out = Linear(take("self_attn.o_proj.weight"))
        self.gate = Linear(take("mlp.gate_proj.weight"))
        self.up = Linear(take("mlp.up_proj.weight"))
        self.down = Linear(take("mlp.down_proj.weight"))
        self.attention_norm = RMSNorm(take("input_layernorm.weight"), config.rms_norm_eps)
        self.mlp_norm = RMSNorm(take("post_attention_layernorm.weight"), config.rms_norm_eps)
        self.head_norms: HeadNorms | None = None
        if config.qk_norm:
            self.head_norms = HeadNorms(
                take("self_attn.q_norm.weight").float().contiguous(),
                take("self_attn.k_norm.weight").float().contiguous(),
                config.rms_norm_eps,
            )

    def forward(
        self, x: torch.Tensor, cache: torch.Tensor, batch: StepBatch, attention: AttentionBackend
    ) -> torch.Tensor:
        qkv = self.qkv(self.attention_norm(x))
        x = self.out.plus(attention.forward(qkv, cache, batch, self.head_norms), x)
        h = self.mlp_norm(x)
        return self.down.plus(self.up.times(h, self.gate.silu(h)), x)


class Llama:
    """Token ids in, logits of the wanted rows out."""

    def __init__(self, config: ModelConfig, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        weights = dict(named)
        self.config = config
        self.num_parameters = sum(weight.numel() for weight in weights.values())
        self.weights_bytes = sum(weight.nbytes for weight in weights.values())
        self.embedding = _take(weights, "model.embed_tokens.weight")
        self.norm = RMSNorm(_take(weights, "model.norm.weight"), config.rms_norm_eps)
        self.layers = [
            DecoderLayer(weights, f"model.layers.{index}", config)
            for index in range(config.num_layers)
        ]
        if config.tie_word_embeddings:
            weights.pop("lm_head.weight", None)
            head = self.embedding
        else:
            head = _take(weights, "lm_head.weight")
        unknown = sorted(name for name in weights if "rotary_emb" not in name)
        if unknown:
            raise EngineConfigError(
                f"the model has weights this engine would not use, such as {unknown[0]}"
            )
        if Linear.copies(head):
            self.weights_bytes += head.nbytes
        self.head_weight = head
        self.head = Linear(head)

    def forward(
        self, batch: StepBatch, caches: list[torch.Tensor], attention: AttentionBackend
    ) -> torch.Tensor:
        """The last layer's output [T, hidden_size]; as many layers as there are caches."""
        x = self.embedding.index_select(0, batch.token_ids)
        for layer, cache in zip(self.layers[: len(caches)], caches, strict=True):
            x = layer.forward(x, cache, batch, attention)
        return x

    def hidden(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """What the head reads of the rows [n] of forward's output: [n, hidden_size]."""
        return self.norm(x.index_select(0, rows))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [n, vocab_size]."""
        return self._settle_ties(self.head(hidden).float(), hidden)

    def _settle_ties(self, logits: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Recompute the highest logits in float32: bfloat16 has about 0.1 between neighbours at
        the top, enough to make the two likeliest tokens equal and their order a matter of luck."""
        if hidden.dtype is torch.float32 or not len(hidden):
            return logits
        top = logits.topk(min(TOP_LOGITS, logits.shape[1]), dim=-1).indices
        return self.settle(logits, hidden, top)

    def settle(
        self, logits: torch.Tensor, hidden: torch.Tensor, token_ids: torch.Tensor
    ) -> torch.Tensor:
        """Recompute the logits of token_ids [n, k] in float32, in place."""
        if hidden.dtype is torch.float32:
            return logits
        rows = self.head_weight[token_ids].float()
        exact = torch.einsum("nkd,nd->nk", rows, hidden.float())
        return logits.scatter_(1, token_ids, exact)


def _take(weights: Weights, name: str) -> torch.Tensor:
    try:
        return weights.pop(name)
    except KeyError:
        raise EngineConfigError(f"the model's files lack the weight {name}") from None
