"""Runs StepPlans on a device: the model side of the engine. Importing this imports torch."""

from engine.runner.memory import MemoryPlan
from engine.runner.runner import ModelInfo, ModelRunner

__all__ = ["MemoryPlan", "ModelInfo", "ModelRunner"]
