"""Measuring: a load sent for a while, the window that counts, its figures and their cautions."""

from tuner.measure.measurement import Measurement, summarize
from tuner.measure.run import (
    MeasurementBrokenError,
    MeasurementInterrupted,
    Sending,
    measure,
)

__all__ = [
    "Measurement", "MeasurementBrokenError", "MeasurementInterrupted", "Sending", "measure",
    "summarize",
]  # fmt: skip
