"""Which device the model runs on: decided here, once, from what --device says and torch sees."""

from __future__ import annotations

import torch

from engine.errors import EngineConfigError


def choose(name: str) -> torch.device:
    """The device of "auto", "cpu" or "cuda"; EngineConfigError where it is not there."""
    there = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if there else "cpu"
    if name == "cuda" and not there:
        raise EngineConfigError("--device cuda: torch sees no CUDA device here; use --device cpu")
    return torch.device(name)
