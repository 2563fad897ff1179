"""What a person sees while a study runs: the trial at hand, best so far, time left."""

from __future__ import annotations

from storage.rows import Stage
from tuner.cli.common import ProgressLine
from tuner.measure.progress import Progress
from tuner.report.flags import config_text
from tuner.report.words import VERDICTS
from tuner.search.decide import Config
from tuner.search.objective import Objective
from tuner.search.pace import Pace
from tuner.search.trial import Outcome
from tuner.slo import SloSet
from tuner.units import show


class Narrator:
    """Events of the search on a ProgressLine; one line stays per finished trial."""

    def __init__(self, line: ProgressLine, objective: Objective, slos: SloSet) -> None:
        self._line = line
        self._objective = objective
        self._slos = slos
        self._now = ""
        self._latest: dict[str, Outcome] = {}
        self._pace: Pace | None = None
        self._finished = 0

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None:
        self._now = f"{stage} {config_text(config)}"
        self._pace = pace
        self._line.update(self._now)

    def done(self, outcome: Outcome) -> None:
        self._finished += 1
        self.remember(outcome)
        self._line.note(
            f"{self._finished:3d} {outcome.stage:<8} {config_text(outcome.config):<58} "
            f"{self._result(outcome)}"
        )

    def remember(self, outcome: Outcome) -> None:
        """A configuration counts as it was measured last: a confirmation may take back a result."""
        if outcome.ok:
            self._latest[config_text(outcome.config)] = outcome

    def note(self, text: str) -> None:
        self._line.note(text)

    def progress(self, progress: Progress) -> None:
        """The running measurement; about twice a second."""
        phase = "warm-up" if progress.warming_up else "measuring"
        elapsed_s = min(progress.elapsed_s, progress.total_s)
        left = f" · about {_clock(self._pace.eta_s())} left" if self._pace is not None else ""
        self._line.update(
            f"{self._now} · {phase} {elapsed_s:.0f}/{progress.total_s:.0f} s · "
            f"{self._best_text()}{left}"
        )

    def _best_text(self) -> str:
        best = self._best()
        if best is None:
            return "none meets the SLOs" if self._slos else "no result yet"
        value = best.measurement.summary[self._objective.key] if best.measurement else None
        figure = show(value.value, value.unit) if value is not None else ""
        return f"best {figure} at {config_text(best.config)}"

    def _best(self) -> Outcome | None:
        """Of those that meet the SLOs at their point estimate."""
        best: Outcome | None = None
        best_value = 0.0
        for outcome in self._latest.values():
            made = outcome.measurement
            value = self._objective.value(made.summary) if made is not None else None
            if value is None or not outcome.meets_by_estimate:
                continue
            if best is None or self._objective.better(value, best_value):
                best, best_value = outcome, value
        return best

    def _result(self, outcome: Outcome) -> str:
        if outcome.state != "ok" or outcome.measurement is None or outcome.verdict is None:
            return f"{outcome.state}: {outcome.failure_reason.splitlines()[0]}"
        summary = outcome.measurement.summary
        keys = dict.fromkeys([self._objective.key, *(c.key for c in self._slos.clauses)])
        figures = [
            f"{key} {show(summary[key].value, summary[key].unit)}" for key in keys if key in summary
        ]
        verdict = f"SLOs {VERDICTS[outcome.verdict.state]}" if self._slos else ""
        return " · ".join([*figures, verdict]).rstrip(" ·")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
