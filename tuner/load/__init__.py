"""Sends a workload to an endpoint and records what happens to every request."""

from tuner.load.plan import Interrupted, LoadBrokenError, LoadPlan, LoadResult
from tuner.load.run import generate
from tuner.load.stalls import LoopStalls

__all__ = [
    "Interrupted", "LoadBrokenError", "LoadPlan", "LoadResult", "LoopStalls", "generate",
]  # fmt: skip
