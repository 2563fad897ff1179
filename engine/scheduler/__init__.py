"""Which tokens are computed in the next step. Pure Python: runs without a model or torch."""

from engine.scheduler.observations import TokenEvent
from engine.scheduler.plan import BindingLimit, ScheduledSeq, StepOutput, StepPlan
from engine.scheduler.scheduler import Scheduler

__all__ = ["BindingLimit", "ScheduledSeq", "Scheduler", "StepOutput", "StepPlan", "TokenEvent"]
