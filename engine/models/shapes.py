"""The shape that a configuration gives to each weight, under Hugging Face's names. No torch.

Invariant: every weight that reaches the model has passed this table, so that the kernels, which
are told sizes by the configuration, never read past a tensor's end.
"""

from __future__ import annotations

from engine.models.config import ModelConfig


def weight_shape(name: str, config: ModelConfig) -> tuple[int, ...] | None:
    """The configured shape of the weight called name; None for one that the model does not have."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size = config.num_heads * config.head_dim
    kv_size = config.num_kv_heads * config.head_dim
    top = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "lm_head.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    in_layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (q_size, hidden),
        "self_attn.k_proj.weight": (kv_size, hidden),
        "self_attn.v_proj.weight": (kv_size, hidden),
        "self_attn.q_proj.bias": (q_size,),
        "self_attn.k_proj.bias": (kv_size,),
        "self_attn.v_proj.bias": (kv_size,),
        "self_attn.o_proj.weight": (hidden, q_size),
        "self_attn.q_norm.weight": (config.head_dim,),
        "self_attn.k_norm.weight": (config.head_dim,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    pieces = name.split(".", 3)
    if len(pieces) == 4 and pieces[:2] == ["model", "layers"]:
        return in_layer.get(pieces[3])
    return top.get(name)
