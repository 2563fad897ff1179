"""Weights and settings that contradict each other are refused before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.models.gguf import config_from_metadata, tensors
from engine.models.shapes import weight_shape
from engine.runner import ModelRunner
from tests.engine.tiny_models import save_folder, save_gguf, tiny_model

Weights = dict[str, torch.Tensor]
LAYER = "model.layers.0."


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture
def folder(model: Any, tmp_path: Path) -> Path:
    return save_folder(model, tmp_path / "model")


def load(path: Path) -> ModelRunner:
    return ModelRunner(EngineConfig(model=str(path), dtype="float32", num_kv_blocks=4).checked())


def refused(path: Path) -> str:
    """The refusal, which is one sentence: no other one is wrapped in it."""
    with pytest.raises(EngineConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.count("--model") <= 1
    assert "\n" not in message
    return message


@pytest.mark.parametrize("family", ["llama_untied", "qwen2", "qwen3"])
def test_every_weight_of_every_family_has_a_shape(family: str, tmp_path: Path) -> None:
    made = tiny_model(family)
    config = load(save_folder(made, tmp_path)).config
    for name, weight in made.state_dict().items():
        assert weight_shape(name, config) == tuple(weight.shape), name


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        LAYER + "input_layernorm.weight",
        LAYER + "post_attention_layernorm.weight",
        LAYER + "self_attn.o_proj.weight",
        LAYER + "mlp.gate_proj.weight",
        LAYER + "mlp.up_proj.weight",
        LAYER + "mlp.down_proj.weight",
    ],
)
def test_a_weight_shorter_than_configured(folder: Path, name: str) -> None:
    """A short norm would otherwise be read past its end by the kernels, unseen."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file({**weights, name: weights[name][:-16].contiguous()}, path)
    assert f"do not fit the configuration: {name} is of" in refused(folder)


def test_q_and_k_of_the_right_sum_but_the_wrong_parts(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    q, k = LAYER + "self_attn.q_proj.weight", LAYER + "self_attn.k_proj.weight"
    save_file({**weights, q: weights[k].clone(), k: weights[q].clone()}, path)
    assert "do not fit" in refused(folder)


def test_integer_weights(folder: Path) -> None:
    path, name = folder / "model.safetensors", LAYER + "mlp.up_proj.weight"
    weights = load_file(path)
    save_file({**weights, name: weights[name].to(torch.int8)}, path)
    assert "stored as int8" in refused(folder)


def test_an_untied_head_that_is_missing(tmp_path: Path) -> None:
    folder = save_folder(tiny_model("llama_untied"), tmp_path / "model")
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["lm_head.weight"]
    save_file(weights, path)
    assert "lack the weight lm_head.weight" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 0}, "num_heads must be a positive number"),
        ({"max_position_embeddings": 0}, "max_model_len must be a positive number"),
        ({"rms_norm_eps": "nan"}, "rms_norm_eps must be a positive number"),
        ({"num_key_value_heads": 3}, "cannot share 3 KV heads evenly"),
        ({"head_dim": 15}, "even head_dim"),
        ({"vocab_size": 300}, "embed_tokens.weight is of (200, 64), (300, 64) is configured"),
        ({"partial_rotary_factor": "x"}, "no number"),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object"),
        ({"rope_scaling": {"type": "dynamic"}}, "'dynamic' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, "linear needs factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "linear needs factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, "linear needs factor"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, "low_freq_factor"),
    ],
)
def test_a_configuration_no_model_can_have(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert words in refused(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["[]", "null", '"x"'])
def test_json_that_is_no_object(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert f"{name} must hold a JSON object" in refused(folder)


METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 200,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"llama.attention.head_count": "four"}, "head_count must be one number, is 'four'"),
        ({"llama.attention.head_count_kv": [2, 4]}, r"must be one number, is \[2, 4\]"),
        ({"llama.rope.scaling.type": "linear"}, "lacks the key llama.rope.scaling.factor"),
        ({"llama.rope.dimension_count": 8}, "partial rotary"),
        ({"llama.attention.value_length": 32}, "unlike keys in length"),
        ({"llama.attention.sliding_window": 64}, "sliding-window"),
        ({"split.count": 3}, "one of several parts"),
    ],
)
def test_gguf_keys_that_would_change_the_result(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineConfigError, match=words):
        config_from_metadata({**METADATA, **changes})


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"llama.attention.head_count_kv": [2, 2]}, "num_key_value_heads", 2),
        ({"llama.rope.scale_linear": 4.0}, "rope_scaling", {"rope_type": "linear", "factor": 4.0}),
        (
            {"llama.rope.scaling.type": "none"},
            "rope_scaling",
            {"rope_type": "default", "factor": 1},
        ),
        ({"llama.attention.sliding_window": 4096}, "max_position_embeddings", 512),
    ],
)
def test_gguf_keys_that_are_understood(changes: dict[str, Any], key: str, value: Any) -> None:
    assert config_from_metadata({**METADATA, **changes})[key] == value


def test_both_ways_of_stretching_multiply(model: Any, tmp_path: Path) -> None:
    path = save_gguf(
        model, tmp_path / "both.gguf", rope_factors=[float(i + 1) for i in range(8)],
        metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    )  # fmt: skip
    scaling = load(path).config.rope_scaling
    assert scaling is not None
    assert scaling["factors"] == [4.0 * (i + 1) for i in range(8)]


@pytest.mark.parametrize("factors", [[1.0] * 3, [0.0] * 8])
def test_rotary_factors_that_do_not_fit(model: Any, tmp_path: Path, factors: list[float]) -> None:
    path = save_gguf(model, tmp_path / "bad.gguf", rope_factors=factors)
    assert "rotary scaling" in refused(path)


@pytest.mark.parametrize("name", ["blk.0", "weird", "blk.0.foo.weight"])
def test_a_gguf_tensor_nobody_knows(
    model: Any, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tensor: Callable[..., None] = gguf.GGUFWriter.add_tensor

    def renamed(self: Any, found: str, *args: Any, **kwargs: Any) -> None:
        add_tensor(self, name if found == "blk.0.attn_q.weight" else found, *args, **kwargs)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", renamed)
    assert f"does not know: {name}" in refused(save_gguf(model, tmp_path / "odd.gguf"))


def test_gguf_heads_that_cannot_share_the_rows(model: Any, tmp_path: Path) -> None:
    path = save_gguf(model, tmp_path / "rows.gguf")
    sizes = {"model_type": "llama", "num_attention_heads": 3, "num_key_value_heads": 2}
    with pytest.raises(EngineConfigError, match=r"attn_q\.weight has 64 rows, which 3 heads"):
        list(tensors(path, sizes))
