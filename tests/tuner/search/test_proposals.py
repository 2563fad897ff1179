"""Optuna is told of every outcome, crashes included, and a history survives its process."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import pytest

from storage import open_database
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.search.budget import parse_budget
from tuner.search.objective import Objective, parse_objective
from tuner.search.proposals import Proposer, history_name, sampler
from tuner.search.space import joint_space
from tuner.slo import parse_slos
from tuner.stats import Estimate
from tuner.trial import Outcome, run_trial

SLOS = parse_slos(["ttft_p95<500ms"])
SPACE = joint_space(FakeTarget().knobs())


def outcome(surface: Surface, config: dict[str, float], number: int | None = None) -> Outcome:
    lab = search_on(surface, budget=parse_budget("9 trials")).lab
    return run_trial(lab, config, stage="search", seed=3, trial_number=number)


def test_a_crash_is_a_finished_trial_with_its_own_constraint() -> None:
    proposer = Proposer(SPACE, Objective(), SLOS, sampler_name="tpe")
    good = outcome(Surface(FakeTarget()), DEFAULTS)
    proposer.learn(good)
    proposal = proposer.ask()
    crash = outcome(Surface(FakeTarget(crashes=lambda c: True)), proposal.config)
    proposer.tell(proposal, crash)
    told = proposer._study.trials[-1]
    assert told.state is optuna.trial.TrialState.COMPLETE
    assert told.user_attrs["margins"][-1] > 0
    assert told.value == proposer._study.trials[0].value  # the worst seen, never 0
    assert proposer._study.trials[0].user_attrs["margins"][-1] < 0


def test_a_run_without_a_finite_objective_is_no_feasible_zero() -> None:
    """Too many requests failed for a percentile: told as infeasible, or 0 s would be the best."""
    proposer = Proposer(SPACE, Objective("ttft_p99", "minimize"), SLOS, sampler_name="tpe")
    made = outcome(Surface(FakeTarget()), DEFAULTS | {"chunk_size": 256})
    assert made.measurement is not None
    assert made.meets_by_estimate
    made.measurement.summary["ttft_p99"] = Estimate(math.inf, 0.2, math.inf, 99, "s", "")
    proposer.learn(made)
    told = proposer._study.trials[-1]
    assert told.system_attrs["constraints"][-1] > 0
    assert told.user_attrs["margins"][-1] > 0


def test_auto_takes_the_gaussian_process_where_torch_is() -> None:
    pytest.importorskip("torch")
    assert isinstance(sampler("auto", 0), optuna.samplers.GPSampler)


def test_auto_without_torch_is_tpe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(sampler("auto", 0), optuna.samplers.TPESampler)


def test_planned_points_come_first() -> None:
    proposer = Proposer(SPACE, Objective(), SLOS, sampler_name="tpe")
    planned = DEFAULTS | {"chunk_size": 256, "max_num_seqs": 64}
    proposer.enqueue([planned])
    proposal = proposer.ask()
    assert proposal.swept
    assert proposal.config == planned


def test_a_killed_process_leaves_no_hole(tmp_path: Path) -> None:
    """Asked and measured but not told, or asked and not measured: both are mended."""

    def proposer(database: object) -> Proposer:
        storage = database.optuna_storage()  # type: ignore[attr-defined]
        return Proposer(SPACE, Objective(), SLOS, sampler_name="tpe", name="s", storage=storage)

    with open_database(tmp_path / "a.db") as database:
        first = proposer(database)
        measured, lost = first.ask(), first.ask()
        stored = outcome(Surface(FakeTarget()), measured.config, measured.number)
    with open_database(tmp_path / "a.db") as database:
        second = proposer(database)
        second.recover([stored])
        states = {t.number: t.state for t in second._study.trials}
        assert states[measured.number] is optuna.trial.TrialState.COMPLETE
        assert states[lost.number] is optuna.trial.TrialState.FAIL
        assert second.ask().number == 2


def test_another_slo_begins_another_history_that_knows_the_old_measurements() -> None:
    other = parse_slos(["ttft_p95<900ms"])
    assert history_name("s", SPACE, Objective(), SLOS) != history_name(
        "s", SPACE, Objective(), other
    )
    proposer = Proposer(SPACE, Objective(), other, sampler_name="tpe")
    proposer.recover([outcome(Surface(FakeTarget()), DEFAULTS, 17)])
    assert [t.user_attrs["config"] for t in proposer._study.trials] == [DEFAULTS]


def test_objectives() -> None:
    assert str(parse_objective(None, None)) == "maximize output_tps"
    assert str(parse_objective("throughput", None)) == "maximize output_tps"
    assert str(parse_objective(None, "p95(ttft)")) == "minimize ttft_p95"
    assert str(parse_objective(None, "ttft_p95")) == "minimize ttft_p95"
