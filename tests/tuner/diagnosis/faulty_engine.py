"""`engine serve` whose host fails, or dawdles, over prompts that begin with a mark.

Run as `python -m tests.tuner.diagnosis.faulty_engine serve …`. What is planted lies where a real
fault of the host would: in making a step's inputs, and in what follows it before the next.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from unittest import mock

from engine import environment
from engine.cli import main
from engine.core import StepResult
from engine.metrics.engine import EngineMetrics
from engine.scheduler.plan import ScheduledSeq

if TYPE_CHECKING:
    import torch

    from engine.attention.base import StepBatch

FAILS, SLOW_INPUTS, SLOW_BETWEEN = 1, 2, 3
"""Marks, first tokens of a prompt: its steps raise, or take DELAY_S longer before the model
computes, or DELAY_S pass after each of them."""

DELAY_S = 0.1
COMPLAINT = "planted: this prompt cannot be read"


class Marks:
    """Which marks the step at hand holds; 0 stands for none, and for a first token that was found
    in the prefix cache."""

    def __init__(self) -> None:
        self.of_sequence: dict[int, int] = {}
        self.present: set[int] = set()

    def see(self, scheduled: Sequence[ScheduledSeq]) -> None:
        for share in scheduled:
            if share.num_computed_tokens == 0:
                self.of_sequence[share.seq_id] = share.token_ids[0]
        self.present = {self.of_sequence.get(share.seq_id, 0) for share in scheduled}


def serve() -> int:
    """The engine's own command line, with the host's faults in it."""
    environment.prepare(num_threads=1)
    from engine.runner import runner
    from engine.runner.inputs import build_batch

    marks, on_step = Marks(), EngineMetrics.on_step

    def inputs(
        scheduled: Sequence[ScheduledSeq], block_size: int, device: torch.device
    ) -> StepBatch:
        marks.see(scheduled)
        if FAILS in marks.present:
            raise ValueError(COMPLAINT)
        if SLOW_INPUTS in marks.present:
            time.sleep(DELAY_S)
        return build_batch(scheduled, block_size, device)

    def told(metrics: EngineMetrics, result: StepResult, *, busy_s: float) -> None:
        on_step(metrics, result, busy_s=busy_s)
        if SLOW_BETWEEN in marks.present:
            time.sleep(DELAY_S)
        marks.present = set()

    with (
        mock.patch.object(runner, "build_batch", inputs),
        mock.patch.object(EngineMetrics, "on_step", told),
    ):
        return main()


if __name__ == "__main__":
    sys.exit(serve())
