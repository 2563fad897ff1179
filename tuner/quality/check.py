"""A study's quality check: the accuracy of each configuration, measured once for all that answer
alike.

Invariant: two configurations share an accuracy only where no setting that differs between them can
change what the model answers (engine.knobs, changes_answers; a flag of the server's own may).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.knobs import KNOBS
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.quality.run import quality_estimate
from tuner.quality.task import Task
from tuner.search.trial import Outcome
from tuner.stats import Estimate
from tuner.targets.base import Config, Setting

Answers = frozenset[tuple[str, Setting]]
"""The settings of a configuration that its answers depend on."""


@dataclass(slots=True)
class QualityCheck:
    """known: what earlier trials have shown."""

    task: Task
    known: dict[Answers, Estimate] = field(default_factory=dict)

    def __call__(self, endpoint: Endpoint, config: Config) -> Estimate:
        """The accuracy of the server at endpoint, which runs config. UserError where it cannot be
        measured, or every item failed: that is no accuracy of 0."""
        found = self.known.get(answers_of(config))
        if found is None:
            found = quality_estimate(endpoint, self.task)
            if not found.measured:
                raise UserError(f"no accuracy: {found.reason}")
            self.known[answers_of(config)] = found
        return found


def check_of(task: Task | None, outcomes: Iterable[Outcome]) -> QualityCheck | None:
    """The check with what stored trials have shown; None without a task."""
    if task is None:
        return None
    check = QualityCheck(task)
    for outcome in outcomes:
        if outcome.measurement is not None and outcome.measurement.accuracy is not None:
            check.known[answers_of(outcome.config)] = outcome.measurement.accuracy
    return check


def answers_of(config: Mapping[str, Setting]) -> Answers:
    return frozenset(
        (name, value)
        for name, value in config.items()
        if name not in KNOBS or KNOBS[name].changes_answers
    )
