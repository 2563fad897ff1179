"""Chooses the attention backend: the fastest that supports the model here, or the one named."""

from __future__ import annotations

from engine.attention import cpu_fused, flash
from engine.attention.base import AttentionBackend, AttentionShape
from engine.attention.torch_paged import TorchPagedAttention
from engine.errors import EngineConfigError
from engine.kernels import build

BACKENDS = ("auto", "cpu_fused", "flash_attn", "torch_sdpa")


def choose(name: str, shape: AttentionShape) -> AttentionBackend:
    """The backend called name; EngineConfigError when it is unknown or cannot run here."""
    if name not in BACKENDS:
        raise EngineConfigError(
            f"--attention-backend must be one of {', '.join(BACKENDS)}, got {name!r}"
        )
    if name in ("auto", "flash_attn") and flash.supports(shape):
        return flash.FlashAttention(shape)
    if name in ("auto", "cpu_fused") and cpu_fused.supports(shape):
        kernels = build.load()
        if kernels is not None:
            return cpu_fused.FusedCpuAttention(shape, kernels)
    if name in ("auto", "torch_sdpa"):
        return TorchPagedAttention(shape)
    raise EngineConfigError(
        f"--attention-backend {name} cannot run here (device {shape.device.type}, dtype "
        f"{str(shape.dtype).removeprefix('torch.')}, block size {shape.block_size}, head_dim "
        f"{shape.config.head_dim}); use auto"
    )
