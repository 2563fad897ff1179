"""Root-mean-square normalisation (Zhang & Sennrich 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engine.kernels import build


class RMSNorm:
    """x / rms(x) * weight over the last dimension; x [rows, dim]."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self.weight = weight
        self.eps = eps
        self._weight_f32 = weight.float().contiguous()
        dim = weight.shape[0]
        fusible = weight.device.type == "cpu" and weight.dtype in (torch.bfloat16, torch.float32)
        self._kernels = build.load() if fusible and dim % 16 == 0 else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._kernels is None:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        out = torch.empty_like(x)
        rows, dim = x.shape
        self._kernels.slotune_rms_norm(
            x.dtype is torch.bfloat16, x.data_ptr(), self._weight_f32.data_ptr(), out.data_ptr(),
            rows, dim, self.eps,
        )  # fmt: skip
        return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The same in plain torch, for any shape [..., dim]."""
    return F.rms_norm(x, weight.shape, weight, eps)
