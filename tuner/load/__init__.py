"""Sends a workload to an endpoint and records what happens to every request."""

from tuner.load.generator import LoadPlan, LoadResult, generate

__all__ = ["LoadPlan", "LoadResult", "generate"]
