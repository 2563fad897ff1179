"""One trial: attempts, what is kept of them, and how failures are classified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.measure import Measurement, MeasurementInterrupted, summarize
from tuner.search.budget import parse_budget
from tuner.search.ledger import StudyLedger
from tuner.search.trial import Lab, Outcome, TrialInterrupted, run_trial
from tuner.search.trials import Config
from tuner.slo.grammar import SloSet
from tuner.targets.base import TargetError


def lab_of(measure: Callable[..., Measurement], target: FakeTarget | None = None) -> Lab:
    made = search_on(Surface(target or FakeTarget()), budget=parse_budget("9 trials")).lab
    return Lab(made.target, made.workload, made.slos, measure, 10.0, 2.0, clock=made.clock)


def trial(lab: Lab) -> Outcome:
    return run_trial(lab, dict(DEFAULTS), stage="search", seed=1)


def invalid(made: Measurement) -> Measurement:
    made.invalid_reason = "the load generator was late itself"
    return made


def test_an_invalid_attempts_measurement_does_not_outlive_a_failed_second_one() -> None:
    surface = Surface(FakeTarget())

    def measure(*words: object, **named: object) -> Measurement:
        if surface.calls == 0:
            return invalid(surface(*words, **named))  # type: ignore[arg-type]
        raise TargetError("the server ended", kind="configuration", log_tail="last words")

    found = trial(lab_of(measure))
    assert (found.state, found.failure_kind) == ("failed", "configuration")
    assert found.measurement is None
    assert found.verdict is None
    assert found.log_tail == "last words"


def test_a_good_second_attempt_leaves_nothing_of_the_first() -> None:
    surface = Surface(FakeTarget())
    attempts: list[int] = []

    def measure(*words: object, **named: object) -> Measurement:
        attempts.append(1)
        if len(attempts) == 1:
            raise TargetError("a hiccup", kind="transient", log_tail="old words")
        return surface(*words, **named)  # type: ignore[arg-type]

    found = trial(lab_of(measure))
    assert found.ok
    assert (found.failure_reason, found.log_tail, found.failure_kind) == ("", "", None)
    assert len(attempts) == 2


def test_two_invalid_attempts_are_no_result_and_no_fault_of_the_configuration() -> None:
    surface = Surface(FakeTarget())
    found = trial(lab_of(lambda *a, **k: invalid(surface(*a, **k))))
    assert (found.state, found.failure_kind) == ("invalid", "transient")
    assert surface.calls == 2
    assert found.measurement is not None
    assert found.measurement.invalid_reason


@pytest.mark.parametrize("kind", ["configuration", "transient"])
def test_what_fails_twice_is_learned(kind: str) -> None:
    target = FakeTarget(crashes=lambda config: True, crash_kind=kind)
    found = trial(lab_of(Surface(target), target))
    assert (found.state, found.failure_kind) == ("failed", "configuration")
    assert len(target.applied) == (1 if kind == "configuration" else 2)


def test_why_it_ended_early_is_kept() -> None:
    class Enough:
        why = ""

        def begin(self) -> None: ...

        def __call__(self, load: object, warmup_s: float) -> bool:
            self.why = "seen enough"
            return True

    surface = Surface(FakeTarget())
    found = run_trial(lab_of(surface), dict(DEFAULTS), stage="search", seed=1, early_end=Enough())
    assert found.ended_early
    assert found.measurement is not None
    assert found.measurement.ended_why == "seen enough"


def test_a_window_without_a_request_is_not_called_failed_requests() -> None:
    surface = Surface(FakeTarget())

    def measure(*words: object, **named: object) -> Measurement:
        made = surface(*words, **named)  # type: ignore[arg-type]
        made.window_s = (1e6, 1e6 + 10.0)
        return summarize(made, SloSet())

    found = trial(lab_of(measure))
    assert found.state == "failed"
    assert found.failure_reason.startswith("no request was scheduled inside the measured window")


def test_the_prefix_cache_is_emptied_under_the_new_settings_and_before_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    target = FakeTarget()
    surface, apply = Surface(target), target.apply

    def measure(*words: object, **named: object) -> Measurement:
        happened.append("loaded")
        return surface(*words, **named)  # type: ignore[arg-type]

    def applied(config: Config) -> None:
        happened.append("applied")
        apply(config)

    monkeypatch.setattr(target, "apply", applied)
    monkeypatch.setattr(target, "reset_prefix_cache", lambda: happened.append("reset"))
    assert trial(lab_of(measure, target)).ok
    assert happened == ["applied", "reset", "loaded"]


def test_a_stored_measurement_names_the_server_that_was_started_for_it(tmp_path: Path) -> None:
    """Its version is not known before: the study's own row cannot tell it."""
    target = FakeTarget(kind="vllm")
    assert "version" not in target.describe()
    lab = lab_of(Surface(target), target)
    with open_database(tmp_path / "s.db") as database:
        study = database.create_study("s", target=target.describe(), state="running")
        StudyLedger(database, study, lab.slos, lab.workload).add(trial(lab))
        (row,) = database.list_measurements(study_id=study.id)
    assert (row.summary or {})["provenance"]["server"] == "vllm 1.2"


def interrupted(whole_why: str | None, target: FakeTarget) -> KeyboardInterrupt:
    surface = Surface(target)

    def measure(*words: object, **named: object) -> Measurement:
        made = surface(*words, **named)  # type: ignore[arg-type]
        made.ended_why = "interrupted"
        raise MeasurementInterrupted(made, whole_why)

    with pytest.raises(KeyboardInterrupt) as stopped:
        trial(lab_of(measure, target))
    return stopped.value


@pytest.mark.parametrize("why", ["", "none of 20 or more requests succeeded"])
def test_ctrl_c_after_the_whole_load_raises_the_trial(why: str) -> None:
    stopped = interrupted(why, FakeTarget())
    assert isinstance(stopped, TrialInterrupted)
    found = stopped.outcome
    assert found.ok
    assert found.verdict is not None
    assert found.measurement is not None
    assert found.measurement.ended_why == why


@pytest.mark.parametrize(
    ("whole_why", "target"), [(None, FakeTarget()), ("", FakeTarget(ends_in_measurement=1))]
)
def test_ctrl_c_amid_a_load_or_after_its_server_ended_is_no_trial(
    whole_why: str | None, target: FakeTarget
) -> None:
    assert isinstance(interrupted(whole_why, target), MeasurementInterrupted)
