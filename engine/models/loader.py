"""Weights of a located model as torch tensors under Hugging Face's names, streamed one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from engine.errors import EngineConfigError
from engine.models import gguf
from engine.models.config import ModelConfig
from engine.models.shapes import weight_shape


def weights(
    path: Path, config: ModelConfig, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor in dtype on the CPU) for every weight of a .gguf file or safetensors folder.

    EngineConfigError for a weight of another shape than the configuration says: the kernels read
    as much as is configured.
    """
    for name, weight in _stored(path, config):
        expected = weight_shape(name, config)
        if expected is not None and tuple(weight.shape) != expected:
            raise EngineConfigError(
                f"--model {path}: the weights do not fit the configuration: {name} is of "
                f"{tuple(weight.shape)}, {expected} is configured"
            )
        if not weight.is_floating_point():
            kind = str(weight.dtype).removeprefix("torch.")
            raise EngineConfigError(
                f"--model {path}: {name} is stored as {kind}; quantised safetensors are not "
                "supported"
            )
        yield name, weight.to(dtype)


def _stored(path: Path, config: ModelConfig) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight as the files hold it."""
    if path.is_file():
        sizes = {
            "model_type": config.family,
            "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.num_kv_heads,
        }
        for name, array in gguf.tensors(path, sizes):
            yield name, torch.from_numpy(array.copy())
        return
    from safetensors import safe_open

    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(str(file), framework="pt", device="cpu") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (not a dict)
                    yield name, tensors.get_tensor(name)
        except Exception as error:
            raise EngineConfigError(
                f"--model {path}: {file.name} cannot be read ({error}); it may be cut off"
            ) from error
