"""y = x Wᵀ + b, with what follows it fused in where the device can.

On a CPU the weight is reordered once into oneDNN's blocked layout; residual addition, SiLU and the
gating product then happen while the result is still in cache.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

PREPACK_ROWS = 16
"""Batch rows that oneDNN chooses the weight layout for: a decode step's."""


class Linear:
    """weight [out, in], bias [out] or None. Input [rows, in], output [rows, out]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.bias = bias
        self.packed = self.copies(weight)
        if self.packed:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PREPACK_ROWS)
        self.weight = weight

    @staticmethod
    def copies(weight: torch.Tensor) -> bool:
        """Whether a Linear keeps its own (reordered) copy of the weight."""
        on_cpu = weight.device.type == "cpu"
        return on_cpu and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            y: torch.Tensor = _pointwise(x, self.weight, self.bias, "none", [], "")
            return y
        return F.linear(x, self.weight, self.bias)

    def silu(self, x: torch.Tensor) -> torch.Tensor:
        """silu(linear(x))"""
        if self.packed:
            y: torch.Tensor = _pointwise(x, self.weight, self.bias, "swish", [], "")
            return y
        return F.silu(F.linear(x, self.weight, self.bias))

    def times(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """linear(x) * other"""
        if self.packed:
            y: torch.Tensor = _pointwise.binary(x, other, self.weight, self.bias, "mul")
            return y
        return F.linear(x, self.weight, self.bias).mul_(other)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """linear(x) + other"""
        if self.packed:
            y: torch.Tensor = _pointwise.binary(x, other, self.weight, self.bias, "add")
            return y
        return F.linear(x, self.weight, self.bias).add_(other)


_pointwise: Any = torch.ops.mkldnn._linear_pointwise
