"""The architecture of a decoder of the Llama family, as its config.json (or GGUF) says it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineConfigError
from engine.models import gguf

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches. Families differ in two switches only: qkv_bias and qk_norm."""

    family: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None
    eos_token_ids: frozenset[int]
    tie_word_embeddings: bool
    qkv_bias: bool
    qk_norm: bool
    torch_dtype: str

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * element_bytes


def read(path: Path) -> ModelConfig:
    """The configuration of a located model; EngineConfigError for what the engine cannot run."""
    if path.is_file():
        return _build(gguf.read_config(path), path)
    raw = _json_object(path / "config.json")
    generation = path / "generation_config.json"
    if generation.is_file():
        raw["eos_token_id"] = _json_object(generation).get("eos_token_id", raw.get("eos_token_id"))
    return _build(raw, path)


def _json_object(file: Path) -> dict[str, Any]:
    try:
        raw = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise EngineConfigError(
            f"--model {file.parent}: {file.name} cannot be read ({error})"
        ) from error
    if not isinstance(raw, dict):
        raise EngineConfigError(
            f"--model {file.parent}: {file.name} must hold a JSON object, holds {raw!r:.40}"
        )
    return raw


def _build(raw: Mapping[str, Any], path: Path) -> ModelConfig:
    family = str(raw.get("model_type", ""))
    if family not in FAMILIES:
        raise EngineConfigError(
            f"--model {path}: architecture {family!r} is not supported; supported are "
            f"{', '.join(FAMILIES)}"
        )
    try:
        _refuse_unsupported(raw, path)
        heads = int(raw["num_attention_heads"])
        hidden = int(raw["hidden_size"])
        config = ModelConfig(
            family=family,
            hidden_size=hidden,
            intermediate_size=int(raw["intermediate_size"]),
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            vocab_size=int(raw["vocab_size"]),
            max_model_len=int(raw["max_position_embeddings"]),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            rope_theta=float(_rope(raw).get("rope_theta", raw.get("rope_theta", 10_000.0))),
            rope_scaling=_scaling(raw, path),
            eos_token_ids=_token_ids(raw.get("eos_token_id")),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2" or bool(raw.get("attention_bias", False)),
            qk_norm=family == "qwen3",
            torch_dtype=str(raw.get("torch_dtype") or raw.get("dtype") or "bfloat16"),
        )
    except EngineConfigError:
        raise
    except KeyError as error:
        raise EngineConfigError(f"--model {path}: config.json lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise EngineConfigError(
            f"--model {path}: config.json has a size that is no number ({error})"
        ) from error
    _require_sound(config, path)
    return config


def _require_sound(config: ModelConfig, path: Path) -> None:
    """Sizes that no model can have; the weights' shapes are checked against the rest."""
    positive = (
        "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
        "vocab_size", "max_model_len", "rms_norm_eps", "rope_theta",
    )  # fmt: skip
    for name in positive:
        value = getattr(config, name)
        if not (math.isfinite(value) and value > 0):
            raise EngineConfigError(f"--model {path}: {name} must be a positive number, is {value}")
    if config.num_heads % config.num_kv_heads:
        raise EngineConfigError(
            f"--model {path}: {config.num_heads} attention heads cannot share "
            f"{config.num_kv_heads} KV heads evenly"
        )
    if config.head_dim % 2:
        raise EngineConfigError(
            f"--model {path}: rotary embedding needs an even head_dim, is {config.head_dim}"
        )
    _require_rotary(config, path)


def _require_rotary(config: ModelConfig, path: Path) -> None:
    """The scaling has every number it needs, and each turns by a finite amount."""
    try:
        frequencies = inverse_frequencies(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        frequencies = []
        reason = f"{type(error).__name__} {error}"
    else:
        reason = "a frequency that is no positive number"
    if not frequencies or not all(math.isfinite(f) and f > 0 for f in frequencies):
        raise EngineConfigError(
            f"--model {path}: the rotary scaling {dict(config.rope_scaling or {})} cannot be used "
            f"({reason}); linear needs factor, llama3 factor, low_freq_factor, high_freq_factor "
            "and original_max_position_embeddings"
        )


def _refuse_unsupported(raw: Mapping[str, Any], path: Path) -> None:
    """What would load and then compute something else than the model's authors meant."""
    activation = raw.get("hidden_act", "silu")
    for unsupported, what in (
        (raw.get("use_sliding_window"), "sliding-window attention"),
        (raw.get("quantization_config"), "quantised safetensors"),
        (activation not in ("silu", "swish"), f"the activation {activation!r}"),
        (float(raw.get("partial_rotary_factor") or 1.0) != 1.0, "partial rotary embedding"),
    ):
        if unsupported:
            raise EngineConfigError(f"--model {path}: {what} is not supported")


def _rope(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("rope_parameters")
    return found if isinstance(found, Mapping) else {}


def _scaling(raw: Mapping[str, Any], path: Path) -> Mapping[str, Any] | None:
    scaling = raw.get("rope_scaling") or _rope(raw)
    if not isinstance(scaling, Mapping):
        raise EngineConfigError(f"--model {path}: rope_scaling must be an object, is {scaling!r}")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return None
    if kind not in ("llama3", "linear", "factors"):
        raise EngineConfigError(
            f"--model {path}: rotary scaling {kind!r} is not supported; supported are default, "
            "linear, llama3"
        )
    return {**scaling, "rope_type": kind}


def _token_ids(value: Any) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset(int(v) for v in (value if isinstance(value, list) else [value]))


def inverse_frequencies(config: ModelConfig) -> list[float]:
    """Rotation per position of each pair of dimensions, in radians (Su et al. 2021; Llama 3.1)."""
    half = config.head_dim // 2
    plain = [config.rope_theta ** (-i / half) for i in range(half)]
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if scaling["rope_type"] == "factors":
        return [f / by for f, by in zip(plain, scaling["factors"], strict=True)]
    factor = float(scaling["factor"])
    if scaling["rope_type"] == "linear":
        return [f / factor for f in plain]
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    original = float(scaling["original_max_position_embeddings"])

    def scaled(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        return (1 - share) * frequency / factor + share * frequency

    return [scaled(f) for f in plain]
