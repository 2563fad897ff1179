"""What is sent: lengths, content and arrivals, all reproducible from a seed."""

from tuner.workload.grammar import parse_workload
from tuner.workload.model import Workload
from tuner.workload.presets import PRESETS

__all__ = ["PRESETS", "Workload", "parse_workload"]
