"""Diagnosis: from a metric source to findings. `collect` reads, `diagnose` judges (pure).

    signals = collect(source, window_s=60.0)
    diagnosis = diagnose(signals, slos, history=history)
"""

from tuner.diagnosis.model import Confidence, Diagnosis, Lever, NodeResult, State
from tuner.diagnosis.signals import Signals

__all__ = ["Confidence", "Diagnosis", "Lever", "NodeResult", "Signals", "State"]
