"""One trial: settings applied, load sent, result judged, failure classified.

Invariant: a trial always ends as an Outcome, with a value only where something was measured. A
failure is the configuration's own (learned) or transient (tried once more, then learned).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from storage.rows import FailureKind, MeasurementState, Stage
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load import LoadResult
from tuner.measure import Measurement, MeasurementInterrupted, summarize
from tuner.measure.held_back import held_back
from tuner.measure.progress import Progress
from tuner.slo import SloSet, Verdict, judge
from tuner.slo.judge import MARGIN_LIMIT
from tuner.stats import Estimate
from tuner.targets.base import Config, Setting, Target, TargetError
from tuner.targets.last_words import classify
from tuner.workload import Workload

ATTEMPTS = 2


class EarlyEnd(Protocol):
    """Asked twice a second whether what was measured so far is enough; why says for what."""

    why: str

    def begin(self) -> None:
        """A run begins: what was seen of another one is forgotten."""
        ...

    def __call__(self, load: LoadResult, warmup_s: float) -> bool: ...


class Measure(Protocol):
    """tuner.measure.measure, or what a test puts in its place."""

    def __call__(
        self,
        endpoint: Endpoint,
        workload: Workload,
        *,
        duration_s: float,
        warmup_s: float,
        seed: int,
        slos: SloSet | None,
        price_per_hour: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        should_stop: Callable[[LoadResult, float], bool] | None = None,
        stop_when_decided: bool = False,
    ) -> Measurement: ...


@dataclass(frozen=True, slots=True)
class Lab:
    """What every trial of a study shares: the target, the load, the judge, the instrument.

    price_per_hour: of the server, for cost_per_mtok. quality: its accuracy under a configuration,
    where the study checks it.
    """

    target: Target
    workload: Workload
    slos: SloSet
    measure: Measure
    window_s: float
    warmup_s: float
    on_progress: Callable[[Progress], None] | None = None
    clock: Callable[[], float] = time.time
    price_per_hour: float | None = None
    quality: Callable[[Endpoint, Config], Estimate] | None = None


@dataclass(slots=True)
class Outcome:
    """What came of one configuration under one load and seed. Times are Unix seconds.

    measurement belongs to the last attempt: never to an earlier one that was tried again.
    workload None: the study's only one. server: engine and version, "" where it does not tell.
    """

    stage: Stage
    config: dict[str, Setting]
    seed: int
    started_at_s: float
    state: MeasurementState
    measurement: Measurement | None = None
    verdict: Verdict | None = None
    failure_kind: FailureKind | None = None
    failure_reason: str = ""
    log_tail: str = ""
    trial_number: int | None = None
    measurement_id: int | None = None
    spent_s: float = field(default=0.0)
    workload: Workload | None = None
    server: str = ""

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    def margins(self, slos: SloSet) -> list[float]:
        """One number per clause, ≤ 0 when met, and a last one for the crash: > 0 when failed."""
        if self.ok and self.verdict is not None:
            return [*self.verdict.margins, -1.0]
        return [MARGIN_LIMIT] * len(slos.clauses) + [1.0]

    @property
    def ended_early(self) -> bool:
        """Whether it was ended on evidence, before its time."""
        return self.measurement is not None and bool(self.measurement.ended_why)

    @property
    def meets_by_estimate(self) -> bool:
        """Whether every clause holds at its point estimate."""
        return self.ok and self.verdict is not None and all(m <= 0 for m in self.verdict.margins)


class TrialInterrupted(KeyboardInterrupt):
    """Ctrl-C after the load of a trial, whose result is whole: outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def run_trial(
    lab: Lab,
    config: dict[str, Setting],
    *,
    stage: Stage,
    seed: int,
    trial_number: int | None = None,
    workload: Workload | None = None,
    early_end: EarlyEnd | None = None,
    until_decided: bool = False,
) -> Outcome:
    """Apply, measure, judge; workload None is the lab's own. early_end and until_decided may end
    the measurement before its time. Raises KeyboardInterrupt (TrialInterrupted with what is whole),
    and TargetError only when the target is gone for good; every other failure is in the Outcome.
    What was measured on a server that ended or was restarted meanwhile is no result."""
    started_at_s = lab.clock()
    outcome = Outcome(
        stage, dict(config), seed, started_at_s, "failed", trial_number=trial_number,
        workload=workload or lab.workload,
    )  # fmt: skip
    for attempt in range(1, ATTEMPTS + 1):
        outcome.measurement, outcome.verdict, outcome.log_tail = None, None, ""
        if early_end is not None:
            early_end.begin()
        try:
            lab.target.apply(config)
            _measure(lab, outcome, early_end, until_decided)
        except TargetError as error:
            if error.gone:
                raise
            _failed(outcome, error.reason, error.kind, error.log_tail)
        except UserError as error:
            tail = lab.target.log_tail()
            _failed(outcome, str(error), classify(tail) if tail else "transient", tail)
        if outcome.state == "ok" or outcome.failure_kind == "configuration":
            break
        if attempt == ATTEMPTS and outcome.state == "failed":
            outcome.failure_kind = "configuration"  # failed twice in a row: it is learned
            outcome.failure_reason += " (twice)"
    outcome.spent_s = lab.clock() - started_at_s
    return outcome


def _measure(lab: Lab, outcome: Outcome, early_end: EarlyEnd | None, until_decided: bool) -> None:
    """The questions come first: a server that cannot answer them costs no load."""
    accuracy = lab.quality(lab.target.endpoint, outcome.config) if lab.quality else None
    lab.target.reset_prefix_cache()
    try:
        made = lab.measure(
            lab.target.endpoint,
            outcome.workload or lab.workload,
            duration_s=lab.window_s,
            warmup_s=lab.warmup_s,
            seed=outcome.seed,
            slos=lab.slos,
            price_per_hour=lab.price_per_hour,
            on_progress=lab.on_progress,
            should_stop=early_end,
            stop_when_decided=until_decided,
        )
    except MeasurementInterrupted as stopped:
        if stopped.whole_why is not None:
            stopped.made.ended_why = stopped.whole_why
            _raise_whole(lab, outcome, stopped.made, accuracy, early_end)
        raise
    _conclude(lab, outcome, made, accuracy, early_end)


def _raise_whole(
    lab: Lab,
    outcome: Outcome,
    made: Measurement,
    accuracy: Estimate | None,
    early_end: EarlyEnd | None,
) -> None:
    """TrialInterrupted, where the trial has a result."""
    with held_back(), contextlib.suppress(TargetError, UserError):
        _conclude(lab, outcome, made, accuracy, early_end)
        outcome.spent_s = lab.clock() - outcome.started_at_s
        if outcome.ok:
            raise TrialInterrupted(outcome)


def _conclude(
    lab: Lab,
    outcome: Outcome,
    made: Measurement,
    accuracy: Estimate | None,
    early_end: EarlyEnd | None,
) -> None:
    """What the measurement says of the trial. Raises TargetError, UserError."""
    if early_end is not None and early_end.why:
        made.ended_why = early_end.why
    if accuracy is not None:
        made.accuracy = accuracy
        summarize(made, lab.slos)
    lab.target.verify()
    outcome.measurement, outcome.server = made, _served_by(lab.target)
    outcome.verdict = judge(lab.slos, made)
    outcome.failure_kind, outcome.failure_reason, outcome.state = None, "", "ok"
    if made.counts.get("ok", 0) == 0 and not _only_censored(made):
        reasons = [record.error for record in made.in_window if record.error]
        why = reasons[0] if reasons else made.invalid_reason or "no request was answered"
        tail = lab.target.log_tail()
        told = f"every request failed: {why}" if made.in_window else why
        _failed(outcome, told, classify(tail), tail)
    elif made.invalid_reason and made.saturation is None:
        # Over-saturation is what the configuration does under this load: bad, but a result.
        outcome.state, outcome.failure_kind = "invalid", "transient"
        outcome.failure_reason = made.invalid_reason


def _served_by(target: Target) -> str:
    about = target.describe()
    return f"{about.get('engine', target.kind)} {about['version']}" if about.get("version") else ""


def _only_censored(made: Measurement) -> bool:
    """Slower than the window: bad, but a result, with lower bounds for latencies."""
    return made.counts.get("censored", 0) > 0 and made.counts.get("failed", 0) == 0


def _failed(outcome: Outcome, reason: str, kind: FailureKind, log_tail: str) -> None:
    outcome.state, outcome.failure_kind = "failed", kind
    outcome.failure_reason, outcome.log_tail = reason, log_tail
    outcome.verdict = None


def worst_margin(outcome: Outcome) -> float:
    """The largest clause margin; infinite where nothing was measured."""
    if not outcome.ok or outcome.verdict is None:
        return math.inf
    return max(outcome.verdict.margins, default=0.0)
