"""A configuration as the command lines that reproduce it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from engine.knobs import KNOBS
from tuner.targets.base import Setting


def engine_flags(config: Mapping[str, Setting]) -> str:
    """`--max-num-seqs 24 --chunk-size 512 …` of `engine serve`."""
    return " ".join(f"{KNOBS[name].engine_flag} {value:g}" for name, value in config.items())


def vllm_flags(config: Mapping[str, Setting]) -> str:
    """The same settings under vLLM's names; what vLLM has no flag for is left out."""
    flags = ((KNOBS[name].vllm_flag, value) for name, value in config.items())
    return " ".join(f"{flag} {value:g}" for flag, value in flags if flag)


def commands(
    config: Mapping[str, Setting], *, model: str = "", vllm_model: str = "MODEL"
) -> dict[str, str]:
    """Engine → command line. model "" is the packaged model of `engine serve`."""
    named = f" --model {shlex.quote(model)}" if model else ""
    return {
        "slotune": f"engine serve{named} {engine_flags(config)}",
        "vllm serve": f"vllm serve {shlex.quote(vllm_model)} {vllm_flags(config)}",
    }


def config_text(config: Mapping[str, Setting]) -> str:
    """`max_num_seqs=24 chunk_size=512`."""
    return " ".join(f"{name}={value:g}" for name, value in config.items()) or "as started"
