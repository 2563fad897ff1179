"""What is tuned: this engine, `vllm serve`, or a URL that somebody else runs."""

from tuner.targets.base import Config, KnobRange, Target, TargetError
from tuner.targets.choose import TargetOptions, open_target

__all__ = ["Config", "KnobRange", "Target", "TargetError", "TargetOptions", "open_target"]
