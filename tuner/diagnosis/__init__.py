"""Diagnosis: from a metric source to findings. `collect` reads, `diagnose` judges (pure).

    signals = collect(source, window_s=60.0)
    diagnosis = diagnose(signals, slos, history=history)

Keep one History per target between evaluations; without one a node fires at once.
"""

from tuner.diagnosis.collect import asked_quantiles, collect
from tuner.diagnosis.model import Confidence, Diagnosis, Lever, NodeResult, State
from tuner.diagnosis.render import render
from tuner.diagnosis.settle import History
from tuner.diagnosis.signals import Signals
from tuner.diagnosis.thresholds import Thresholds, load_thresholds
from tuner.diagnosis.tree import diagnose

__all__ = [
    "Confidence",
    "Diagnosis",
    "History",
    "Lever",
    "NodeResult",
    "Signals",
    "State",
    "Thresholds",
    "asked_quantiles",
    "collect",
    "diagnose",
    "load_thresholds",
    "render",
]
