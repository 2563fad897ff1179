"""Rotary position embedding (Su et al. 2021), half-rotated as in Llama."""

from __future__ import annotations

import torch

from engine.models.config import ModelConfig, inverse_frequencies


class RotaryTable:
    """cos and sin of every position, float32 [max_model_len, head_dim / 2]."""

    def __init__(self, config: ModelConfig, max_model_len: int, device: torch.device) -> None:
        frequencies = torch.tensor(inverse_frequencies(config), dtype=torch.float64)
        angles = torch.outer(torch.arange(max_model_len, dtype=torch.float64), frequencies)
        self.cos = angles.cos().float().to(device)
        self.sin = angles.sin().float().to(device)

    def rotate(self, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """heads [tokens, n, head_dim] rotated by their positions [tokens]; float32 inside."""
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        a, b = heads.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(heads.dtype)
