"""What a person sees while a study runs: the trial at hand, best so far, time left."""

from __future__ import annotations

from collections.abc import Sequence

from storage.rows import Stage
from tuner.cli.common import ProgressLine
from tuner.measure.progress import Progress
from tuner.report.words import VERDICTS
from tuner.search.decide import Config
from tuner.search.goal import Goal
from tuner.search.objective import CAPACITY, Objective
from tuner.search.pace import Pace
from tuner.search.trial import Outcome
from tuner.search.trials import Trial, trials_of
from tuner.slo import SloSet
from tuner.targets.base import config_text
from tuner.units import digits, show


class Narrator:
    """Events of the search on a ProgressLine; one line stays per finished measurement.

    goal: what the study is after; None where each measurement stands for itself (a sweep).
    """

    def __init__(
        self, line: ProgressLine, objective: Objective, slos: SloSet, goal: Goal | None = None
    ) -> None:
        self._line = line
        self._slos = slos
        self._goal = goal
        self._objectives = goal.objectives if goal is not None else (objective,)
        self._now = ""
        self._known: list[Outcome] = []
        self._pace: Pace | None = None
        self._best_told: str | None = None  # until the next outcome

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None:
        self._now = f"{stage} {config_text(config)}"
        self._pace = pace
        self._line.update(self._now)

    def done(self, outcome: Outcome) -> None:
        self.remember(outcome)
        self._line.note(
            f"{len(self._known):3d} {outcome.stage:<8} {config_text(outcome.config):<58} "
            f"{self._load_text(outcome)}{self._result(outcome)}"
        )

    def remember(self, outcome: Outcome) -> None:
        self._known.append(outcome)
        self._best_told = None

    def note(self, text: str) -> None:
        self._line.note(text)

    def progress(self, progress: Progress) -> None:
        """The running measurement; about twice a second."""
        if self._best_told is None:
            self._best_told = self._best_text()
        left = f" · about {_clock(self._pace.eta_s())} left" if self._pace is not None else ""
        self._line.update(f"{self._now} · {progress.clock()} · {self._best_told}{left}")

    def _load_text(self, outcome: Outcome) -> str:
        """Under which of its loads a trial was measured; "" where there is but one."""
        goal, load = self._goal, outcome.workload
        if goal is None or load is None:
            return ""
        if goal.objectives[0].key == CAPACITY:
            return f"at {load.arrivals.level_text(load.arrivals.level)} · "
        return f"under {load} · " if len(goal.loads) > 1 else ""

    def _best_text(self) -> str:
        found = self._best()
        if found is None:
            return "none meets the SLOs yet" if self._slos and self._known else "no result yet"
        trial, values = found
        told = [
            self._figure(trial, objective, value)
            for objective, value in zip(self._objectives, values, strict=True)
            if value is not None
        ]
        return f"best so far {', '.join(told)}{self._doubt(trial)} at {config_text(trial.config)}"

    def _doubt(self, trial: Trial) -> str:
        """That the best is so by its point estimates only. A capacity is a level that was met."""
        if not self._slos or self._objectives[0].key == CAPACITY:
            return ""
        states = {part.verdict.state for part in trial.parts if part.verdict is not None}
        return "" if states == {"pass"} else " (SLOs undecided)"

    def _figure(self, trial: Trial, objective: Objective, value: float) -> str:
        if self._goal is not None and len(self._goal.loads) > 1:
            worst = f"{digits(value)} × baseline (worst of {len(self._goal.loads)} loads)"
            return f"{objective.key} {worst}"
        part = trial.parts[0]
        if objective.key == CAPACITY and part.workload is not None:
            return part.workload.arrivals.level_text(value)
        estimate = part.measurement.summary.get(objective.key) if part.measurement else None
        figure = show(value, estimate.unit if estimate is not None else "")
        return figure if len(self._objectives) == 1 else f"{objective.key} {figure}"

    def _best(self) -> tuple[Trial, tuple[float | None, ...]] | None:
        """Of those that meet the SLOs at their point estimate, the best in the first objective. A
        configuration counts as it was measured last: a confirmation may take back a result."""
        trials = trials_of(self._known)
        latest = {config_text(t.config): t for t in trials if t.ok and self._counts(t)}
        best: tuple[Trial, tuple[float | None, ...]] | None = None
        best_value = 0.0
        for trial in latest.values():
            values, meets = self._read(trial, trials)
            if values[0] is None or not meets:
                continue
            if best is None or self._objectives[0].better(values[0], best_value):
                best, best_value = (trial, values), values[0]
        return best

    def _counts(self, trial: Trial) -> bool:
        """Whether all of it was measured, or a part speaks for itself."""
        goal = self._goal
        return goal is None or len(trial.parts) >= len(goal.loads)

    def _read(self, trial: Trial, trials: Sequence[Trial]) -> tuple[tuple[float | None, ...], bool]:
        if self._goal is not None:
            reading = self._goal.read(trial, trials)
            return reading.values, reading.meets
        last = trial.parts[-1]
        summary = last.measurement.summary if last.measurement is not None else {}
        return tuple(o.value(summary) for o in self._objectives), last.meets_by_estimate

    def _result(self, outcome: Outcome) -> str:
        if outcome.state != "ok" or outcome.measurement is None or outcome.verdict is None:
            return f"{outcome.state}: {outcome.failure_reason.splitlines()[0]}"
        summary = outcome.measurement.summary
        keys = dict.fromkeys(
            [*(o.key for o in self._objectives), *(c.key for c in self._slos.clauses)]
        )
        figures = [
            f"{key} {show(summary[key].value, summary[key].unit)}" for key in keys if key in summary
        ]
        verdict = f"SLOs {VERDICTS[outcome.verdict.state]}" if self._slos else ""
        return " · ".join([*figures, verdict]).rstrip(" ·")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
