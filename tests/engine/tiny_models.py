"""Random models of a few thousand weights, written as Hugging Face folders or as GGUF files.

Weights are drawn wide, so that the logits are far apart and a wrong one changes the token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

SIZES: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES: dict[str, tuple[type, dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, {"tie_word_embeddings": True}),
    "llama_untied": (transformers.LlamaConfig, {"tie_word_embeddings": False}),
    "llama_3.1": (
        transformers.LlamaConfig,
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "llama_linear": (
        transformers.LlamaConfig,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    ),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 32}),
}  # fmt: skip


def tiny_model(family: str, seed: int = 0) -> transformers.PreTrainedModel:
    """A float32 model; biases and norm weights are random too, which they are not at first."""
    torch.manual_seed(seed)
    kind, extra = FAMILIES[family]
    model = transformers.AutoModelForCausalLM.from_config(kind(**{**SIZES, **extra})).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.5)
            elif "norm" in name:
                weight.uniform_(0.5, 1.5)
    return model.eval()


def save_folder(model: transformers.PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def save_gguf(
    model: transformers.PreTrainedModel,
    path: Path,
    *,
    quantization: str = "F32",
    rope_factors: list[float] | None = None,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """The model as llama.cpp's converter would write it: Llama's q and k rows interleaved."""
    import gguf

    config = model.config
    family = config.model_type
    writer = gguf.GGUFWriter(str(path), family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    writer.add_eos_token_id(2)
    for key, value in (metadata or {}).items():
        (writer.add_string if isinstance(value, str) else writer.add_float32)(key, value)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(rope_factors, dtype=np.float32))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = weight.numpy()
        for part, heads in (
            ("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads),
        ):  # fmt: skip
            if family == "llama" and part in name:
                array = _interleaved(array, heads)
        kind = gguf.GGMLQuantizationType[quantization if array.ndim > 1 else "F32"]
        data = gguf.quantize(np.ascontiguousarray(array), kind)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from (first half, second half) to (pair, pair, …)."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
