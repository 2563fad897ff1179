"""The quality check: a task file's questions put to a server, and the share it answers rightly."""

from tuner.quality.ask import check_scoring
from tuner.quality.run import QualityResult, quality_estimate, run_task
from tuner.quality.task import ExactMatch, MultipleChoice, Task, pinned, read_pinned, read_task

__all__ = [
    "ExactMatch", "MultipleChoice", "QualityResult", "Task", "check_scoring", "pinned",
    "quality_estimate", "read_pinned",
    "read_task", "run_task",
]  # fmt: skip
