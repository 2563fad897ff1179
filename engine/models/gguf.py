"""Reads GGUF files: metadata (without torch) and tensors, under Hugging Face's names.

Llama-type GGUFs store the rows of q and k permuted for interleaved rotary embedding; the order is
undone here, once, so that the rest of the engine knows only half-rotated heads.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import EngineConfigError

if TYPE_CHECKING:
    import numpy.typing as npt

_LAYER_PARTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
_ROPE_FACTORS = "rope_freqs.weight"
"""Llama 3.1's stretching of the rotary frequencies, stored as one divisor per pair."""


@functools.lru_cache(maxsize=1)
def _open(path: Path) -> Any:
    """The file's reader, kept: parsing a vocabulary takes seconds, and three callers want it."""
    from gguf import GGUFReader

    try:
        return GGUFReader(str(path))
    except Exception as error:  # struct, numpy and value errors alike: the file is damaged
        raise EngineConfigError(
            f"--model {path}: the GGUF file cannot be read ({error}); it may be cut off"
        ) from error


def read_config(path: Path) -> dict[str, Any]:
    """The file's architecture as a Hugging Face config.json would say it."""
    config = config_from_metadata(read_metadata(path))
    stored = {tensor.name: tensor for tensor in _open(path).tensors}
    config["tie_word_embeddings"] = "output.weight" not in stored
    scaling = config["rope_scaling"]
    if _ROPE_FACTORS in stored and scaling["rope_type"] in ("default", "linear"):
        factors = np.asarray(_dequantized(stored[_ROPE_FACTORS]), dtype=np.float64)
        factors = factors * scaling["factor"]  # both stretch, as in llama.cpp
        config["rope_scaling"] = {"rope_type": "factors", "factors": factors.tolist()}
    return config


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of the file: str, int, float, bool or lists of them."""
    return {name: field.contents() for name, field in _open(path).fields.items()}


def config_from_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as a Hugging Face config.json would say it."""
    architecture = str(metadata.get("general.architecture", ""))
    supported = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
    if architecture not in supported:
        raise EngineConfigError(
            f"the GGUF file is of architecture {architecture!r}; supported are "
            f"{', '.join(supported)}"
        )

    def number(key: str, default: float | None = None) -> float:
        return _number(metadata, f"{architecture}.{key}", default)

    heads = int(number("attention.head_count"))
    hidden = int(number("embedding_length"))
    context = int(number("context_length"))
    head_dim = int(number("attention.key_length", hidden // heads if heads > 0 else 0))
    _refuse_unsupported(metadata, architecture, head_dim, context)
    return {
        "model_type": supported[architecture],
        "hidden_size": hidden,
        "intermediate_size": int(number("feed_forward_length")),
        "num_hidden_layers": int(number("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(number("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "vocab_size": int(
            metadata.get(f"{architecture}.vocab_size")
            or len(metadata.get("tokenizer.ggml.tokens", ()))
        ),
        "max_position_embeddings": context,
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_theta": number("rope.freq_base", 10_000.0),
        "rope_scaling": _rope_scaling(metadata, architecture),
        "eos_token_id": [metadata[key] for key in _END_KEYS if key in metadata],
    }


def _refuse_unsupported(
    metadata: Mapping[str, Any], architecture: str, head_dim: int, context: int
) -> None:
    """What would load and then compute something else than the model's authors meant."""

    def number(key: str, default: float) -> float:
        return _number(metadata, f"{architecture}.{key}", default)

    window = number("attention.sliding_window", context)
    for found, wanted, what in (
        (metadata.get("split.count", 1), 1, "is one of several parts of a model"),
        (number("rope.dimension_count", head_dim), head_dim, "has partial rotary embedding"),
        (number("attention.value_length", head_dim), head_dim, "has values unlike keys in length"),
        (min(window, context), context, "has sliding-window attention"),
    ):  # fmt: skip
        if found != wanted:
            raise EngineConfigError(f"the GGUF file {what}, which is not supported")


def _rope_scaling(metadata: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Type and factor; files older than rope.scaling.type carry rope.scale_linear alone."""
    kind = metadata.get(f"{architecture}.rope.scaling.type")
    if kind is None and f"{architecture}.rope.scale_linear" in metadata:
        factor = _number(metadata, f"{architecture}.rope.scale_linear")
        return {"rope_type": "linear", "factor": factor}
    if kind in (None, "none"):
        return {"rope_type": "default", "factor": 1.0}
    needed = None if kind == "linear" else 1.0  # other kinds are refused by their name
    factor = _number(metadata, f"{architecture}.rope.scaling.factor", needed)
    return {"rope_type": str(kind), "factor": factor}


def _number(metadata: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A key's number; where a file gives one per layer, they must be equal."""
    found = metadata.get(key, default)
    if found is None:
        raise EngineConfigError(f"the GGUF file lacks the key {key}")
    if isinstance(found, list) and len(set(found)) == 1:
        found = found[0]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise EngineConfigError(f"the GGUF file's key {key} must be one number, is {found!r:.80}")
    return found


def tensors(path: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """(Hugging Face name, float32 array) of every weight, dequantised one at a time."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    permuted = config["model_type"] == "llama"
    for tensor in _open(path).tensors:
        if tensor.name == _ROPE_FACTORS:
            continue
        name = _hugging_face_name(tensor.name)
        weight = _dequantized(tensor)
        part = name.split(".")[-2]
        if permuted and part in heads:
            if weight.shape[0] % (2 * int(heads[part])):
                raise EngineConfigError(
                    f"the GGUF file's tensor {tensor.name} has {weight.shape[0]} rows, which "
                    f"{heads[part]} heads cannot share"
                )
            weight = _undo_interleaving(weight, int(heads[part]))
        yield name, weight


def _dequantized(tensor: Any) -> npt.NDArray[np.float32]:
    from gguf import dequantize

    try:
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    except NotImplementedError as error:
        raise EngineConfigError(
            f"the GGUF file's tensor {tensor.name} is stored as {tensor.tensor_type.name}, which "
            "cannot be read; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and the K quants can"
        ) from error


def _undo_interleaving(
    weight: npt.NDArray[np.float32], heads: int
) -> npt.NDArray[np.float32]:  # [heads * head_dim, …]
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _hugging_face_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    pieces = name.split(".")
    if len(pieces) == 4 and pieces[0] == "blk" and pieces[2] in _LAYER_PARTS:
        return f"model.layers.{pieces[1]}.{_LAYER_PARTS[pieces[2]]}.{pieces[3]}"
    raise EngineConfigError(f"the GGUF file has a tensor this engine does not know: {name}")
