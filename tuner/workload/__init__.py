"""What is sent: lengths, content and arrivals, all reproducible from a seed."""

from tuner.workload.model import PRESETS, Workload, parse_workload

__all__ = ["PRESETS", "Workload", "parse_workload"]
