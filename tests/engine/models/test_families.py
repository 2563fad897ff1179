"""Each supported family, from each file format, gives the logits that transformers gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from engine.config import EngineConfig
from engine.runner import ModelRunner
from engine.runner.inputs import build_batch
from engine.sampling_params import SamplingParams
from engine.scheduler.plan import ScheduledSeq
from tests.engine.tiny_models import FAMILIES, save_folder, save_gguf, tiny_model

PROMPT = [(7 * i) % 199 for i in range(150)]


def runner(path: Path, backend: str = "auto", dtype: str = "float32") -> ModelRunner:
    return ModelRunner(
        EngineConfig(
            model=str(path), dtype=dtype, num_kv_blocks=16, max_num_seqs=2, max_num_seqs_limit=2,
            chunk_size=256, chunk_size_limit=256, max_model_len=256, attention_backend=backend,
        ).checked()
    )  # fmt: skip


def engine_logits(made: ModelRunner) -> torch.Tensor:
    """Logits after PROMPT, computed in two steps."""
    table = tuple(range(len(PROMPT) // 16 + 1))
    with torch.inference_mode():
        for start, end in ((0, 100), (100, len(PROMPT))):
            share = ScheduledSeq(0, start, PROMPT[start:end], table, True, SamplingParams(), 0)
            batch = build_batch([share], 16, torch.device("cpu"))
            x = made.model.forward(batch, made._caches, made.attention)
            logits = made.model.logits(made.model.hidden(x, batch.sample_rows))
    return logits[0]


def expected_logits(model: transformers.PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        return torch.as_tensor(model(torch.tensor([PROMPT])).logits[0, -1])


def assert_same(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * float(expected.std()))


@pytest.mark.parametrize("backend", ["auto", "torch_sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_safetensors_folder(family: str, backend: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    assert_same(
        engine_logits(runner(save_folder(model, tmp_path), backend)), expected_logits(model)
    )


@pytest.mark.parametrize("family", ["llama", "llama_untied", "qwen2", "qwen3"])
def test_gguf_file(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    path = save_gguf(model, tmp_path / "tiny.gguf")
    assert_same(engine_logits(runner(path)), expected_logits(model))


@pytest.mark.parametrize("quantization", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_gguf_quantizations(quantization: str, tmp_path: Path) -> None:
    """Equal to transformers on the weights as they are stored."""
    import gguf

    model = tiny_model("llama")
    path = save_gguf(model, tmp_path / "tiny.gguf", quantization=quantization)
    kind = gguf.GGMLQuantizationType[quantization]
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                stored = gguf.quantize(weight.numpy(), kind)
                weight.copy_(torch.from_numpy(gguf.dequantize(stored, kind).copy()))
    assert_same(engine_logits(runner(path)), expected_logits(model))


def test_gguf_rotary_factors_of_llama_3_1(tmp_path: Path) -> None:
    model = tiny_model("llama_3.1")
    rotary = model.model.rotary_emb
    half = model.config.head_dim // 2
    plain = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    factors = (plain / rotary.inv_freq.double()).tolist()
    assert max(factors) > 7.9
    path = save_gguf(model, tmp_path / "tiny.gguf", rope_factors=factors)
    assert_same(engine_logits(runner(path)), expected_logits(model))


def test_gguf_linear_rotary_scaling(tmp_path: Path) -> None:
    model = tiny_model("llama_linear")
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    path = save_gguf(model, tmp_path / "tiny.gguf", metadata=scaling)
    assert_same(engine_logits(runner(path)), expected_logits(model))


@pytest.mark.parametrize("backend", ["auto", "torch_sdpa"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_bfloat16_is_near(family: str, backend: str, tmp_path: Path) -> None:
    """Rounding noise only: the direction of the logits stays."""
    model = tiny_model(family)
    made = runner(save_folder(model, tmp_path), backend, "bfloat16")
    likeness = torch.cosine_similarity(engine_logits(made), expected_logits(model), dim=0)
    assert likeness > 0.995
