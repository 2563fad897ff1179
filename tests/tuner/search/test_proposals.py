"""Optuna is told of every outcome, crashes included, and a history survives its process."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from storage import open_database
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, goal_of, search_on
from tuner.errors import UserError
from tuner.search.budget import parse_budget
from tuner.search.objective import Objective, parse_objectives
from tuner.search.proposals import Proposer, history_name
from tuner.search.samplers import make_sampler
from tuner.search.space import joint_space
from tuner.search.trial import run_trial
from tuner.search.trials import Config, Trial
from tuner.stats import Estimate

GOAL = goal_of("ttft_p95<500ms")
SPACE = joint_space(FakeTarget().knobs())


def trial(surface: Surface, config: Config, number: int | None = None) -> Trial:
    lab = search_on(surface, budget=parse_budget("9 trials")).lab
    return Trial((run_trial(lab, config, stage="search", seed=3, trial_number=number),))


@pytest.mark.parametrize(
    ("objective", "worst"), [(Objective(), min), (Objective("ttft_p95", "minimize"), max)]
)
def test_a_crash_is_a_finished_trial_with_its_own_constraint(
    objective: Objective, worst: Callable[[list[float]], float]
) -> None:
    proposer = Proposer(SPACE, goal_of("ttft_p95<500ms", objective), sampler_name="tpe")
    for chunk in (2048, 64):
        proposer.learn(trial(Surface(FakeTarget()), DEFAULTS | {"chunk_size": chunk}))
    seen = [t.value for t in proposer._study.trials]
    assert len(set(seen)) == 2
    proposal = proposer.ask()
    assert proposal is not None
    crash = trial(Surface(FakeTarget(crashes=lambda c: True)), proposal.config)
    proposer.tell(proposal, crash)
    told = proposer._study.trials[-1]
    assert told.state is optuna.trial.TrialState.COMPLETE
    assert told.user_attrs["margins"][-1] > 0
    assert told.value == worst([value for value in seen if value is not None])  # never 0
    assert proposer._study.trials[0].user_attrs["margins"][-1] < 0


def crashed_share(sampler: str, points: int) -> float:
    """Of the points that the sampler chose itself after its first ten, where half of the axis of
    max_num_seqs ends the server and what serves most is decided by another knob."""
    crashed = []
    for seed in range(3):
        proposer = Proposer(SPACE, goal_of("ttft_p95<5s"), sampler_name=sampler, seed=seed)
        surface = Surface(
            FakeTarget(crashes=lambda c: float(c["max_num_seqs"]) >= 32), ttft=lambda c: 0.1,
            rate=lambda c: 20 + float(c["chunk_size"]) / 400,
        )  # fmt: skip
        for number in range(points):
            proposal = proposer.ask()
            assert proposal is not None
            made = trial(surface, proposal.config, proposal.number)
            proposer.tell(proposal, made)
            crashed += [made.failed] if number >= 10 else []
    return sum(crashed) / len(crashed)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("sampler", "points"), [("gp", 20), ("tpe", 30)])
def test_the_sampler_moves_away_from_crashes(sampler: str, points: int) -> None:
    by_chance = crashed_share("random", points)
    assert 0.35 <= by_chance <= 0.65
    assert crashed_share(sampler, points) <= 0.5 * by_chance


def test_a_run_without_a_finite_objective_is_no_feasible_zero() -> None:
    """Too many requests failed for a percentile: told as infeasible, or 0 s would be the best."""
    goal = goal_of("ttft_p95<500ms", Objective("ttft_p99", "minimize"))
    proposer = Proposer(SPACE, goal, sampler_name="tpe")
    made = trial(Surface(FakeTarget()), DEFAULTS | {"chunk_size": 256})
    measured = made.parts[0].measurement
    assert measured is not None
    assert made.parts[0].meets_by_estimate
    measured.summary["ttft_p99"] = Estimate(math.inf, 0.2, math.inf, 99, "s", "")
    proposer.learn(made)
    told = proposer._study.trials[-1]
    assert told.system_attrs["constraints"][-1] > 0
    assert told.user_attrs["margins"][-1] > 0


def test_auto_takes_the_gaussian_process_where_torch_is() -> None:
    pytest.importorskip("torch")
    assert isinstance(make_sampler("auto", 0, SPACE), optuna.samplers.GPSampler)


def test_auto_without_torch_is_tpe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(make_sampler("auto", 0, SPACE), optuna.samplers.TPESampler)
    assert isinstance(make_sampler("auto", 0, SPACE, 2), optuna.samplers.NSGAIISampler)


def test_planned_points_come_first() -> None:
    proposer = Proposer(SPACE, GOAL, sampler_name="tpe")
    planned = DEFAULTS | {"chunk_size": 256, "max_num_seqs": 64}
    proposer.enqueue([planned])
    proposal = proposer.ask()
    assert proposal is not None
    assert proposal.swept
    assert proposal.config == planned


def test_a_killed_process_leaves_no_hole(tmp_path: Path) -> None:
    """Asked and measured but not told, or asked and not measured: told, and asked again."""

    def proposer(database: object, worker: str) -> Proposer:
        storage = database.optuna_storage()  # type: ignore[attr-defined]
        return Proposer(
            SPACE, GOAL, sampler_name="tpe", name="s", storage=storage, worker=worker,
            alive=lambda other: other == worker,
        )  # fmt: skip

    with open_database(tmp_path / "a.db") as database:
        first = proposer(database, "first")
        measured, lost = first.ask(), first.ask()
        assert measured is not None
        assert lost is not None
        stored = trial(Surface(FakeTarget()), measured.config, measured.number)
    with open_database(tmp_path / "a.db") as database:
        second = proposer(database, "second")
        second.recover([stored])
        states = {t.number: t.state for t in second._study.trials}
        assert states[measured.number] is optuna.trial.TrialState.COMPLETE
        assert states[lost.number] is optuna.trial.TrialState.FAIL
        again = second.ask()
        assert again is not None
        assert (again.config, again.asked) == (lost.config, lost.number)


def test_what_a_living_worker_measures_is_left_to_it(tmp_path: Path) -> None:
    with open_database(tmp_path / "a.db") as database:
        storage = database.optuna_storage()
        first, second = (
            Proposer(
                SPACE, GOAL, sampler_name="random", seed=3, name="s", storage=storage,
                worker=name, alive=lambda other: other in ("first", "second"),
            )
            for name in ("first", "second")
        )  # fmt: skip
        taken = [first.ask() for _ in range(3)]
        second.recover([])
        mine = second.ask()
    assert mine is not None
    assert all(point is not None and point.config != mine.config for point in taken)
    assert len(second.running()) == 3


def test_another_slo_begins_another_history_that_knows_the_old_measurements() -> None:
    other = goal_of("ttft_p95<900ms")
    assert history_name("s", SPACE, GOAL) != history_name("s", SPACE, other)
    proposer = Proposer(SPACE, other, sampler_name="tpe")
    proposer.recover([trial(Surface(FakeTarget()), DEFAULTS, 17)])
    assert [t.user_attrs["config"] for t in proposer._study.trials] == [DEFAULTS]


@pytest.mark.parametrize("name", ["gp", "tpe", "nsga2", "grid", "random"])
def test_every_sampler_proposes_what_the_engine_takes_and_hears_constraints(name: str) -> None:
    proposer = Proposer(SPACE, GOAL, sampler_name=name, seed=1)
    for _ in range(12):
        proposal = proposer.ask()
        assert proposal is not None
        assert proposal.config["chunk_size"] >= proposal.config["max_num_seqs"]
        surface = Surface(FakeTarget(crashes=lambda c: c["max_num_seqs"] > 100))
        proposer.tell(proposal, trial(surface, proposal.config, proposal.number))
    finished = [t for t in proposer._study.trials if t.state.is_finished()]
    assert all(t.state is optuna.trial.TrialState.COMPLETE for t in finished)
    crashed = [t for t in finished if t.user_attrs["config"]["max_num_seqs"] > 100]
    assert all(t.user_attrs["margins"][-1] > 0 for t in crashed)


def test_a_grid_ends_when_every_point_was_measured() -> None:
    space = joint_space(FakeTarget().knobs(), ["max_num_seqs=8,16", "chunk_size=64,512,2048"])
    proposer = Proposer(space, GOAL, sampler_name="grid")
    seen = []
    while (proposal := proposer.ask()) is not None:
        seen.append(proposal.config)
        proposer.tell(proposal, trial(Surface(FakeTarget()), proposal.config, proposal.number))
    assert len(seen) == 6
    assert len({tuple(config.items()) for config in seen}) == 6


def test_a_small_space_ends_whatever_the_sampler() -> None:
    space = joint_space(FakeTarget().knobs(), ["max_num_seqs=8,16", "chunk_size=64,512"])
    proposer = Proposer(space, GOAL, sampler_name="tpe", seed=5)
    seen = []
    while (proposal := proposer.ask()) is not None:
        seen.append(tuple(proposal.config.items()))
        proposer.tell(proposal, trial(Surface(FakeTarget()), proposal.config, proposal.number))
    assert len(seen) == len(set(seen)) == 4


def test_impossible_points_are_told_and_never_proposed() -> None:
    told = []

    def rules_out(config: Config) -> bool:
        if config["gpu_memory_utilization"] < 0.8:
            told.append(config)
            return True
        return False

    proposer = Proposer(SPACE, GOAL, sampler_name="tpe", seed=2, rules_out=rules_out)
    for _ in range(8):
        proposal = proposer.ask()
        assert proposal is not None
        assert proposal.config["gpu_memory_utilization"] >= 0.8
        proposer.tell(proposal, trial(Surface(FakeTarget()), proposal.config, proposal.number))
    assert told
    impossible = [t for t in proposer._study.trials if "config" not in t.user_attrs]
    assert len(impossible) == len(told)
    assert all(t.user_attrs["margins"][-1] > 0 for t in impossible)


def test_objectives() -> None:
    def parsed(maximize: list[str], minimize: list[str]) -> list[str]:
        return [str(objective) for objective in parse_objectives(maximize, minimize)]

    assert parsed([], []) == ["maximize output_tps"]
    assert parsed(["throughput"], []) == ["maximize output_tps"]
    assert parsed([], ["p95(ttft)"]) == ["minimize ttft_p95"]
    assert parsed(["rps"], ["ttft_p95"]) == ["maximize rps", "minimize ttft_p95"]
    assert parsed(["capacity"], []) == ["maximize capacity"]


@pytest.mark.parametrize(
    ("maximize", "minimize", "says"),
    [
        (["rps", "rps"], [], "twice"),
        (["capacity", "rps"], [], "alone"),
        ([], ["capacity"], "maximise it"),
        ([], ["cost_per_mtok"], "--price-per-hour"),
        (["rps", "goodput"], ["ttft_p95", "tpot_p95"], "at most 3"),
        (["capacty"], [], "did you mean capacity"),
        (["foo"], [], "unknown figure; e.g. output_tps"),
    ],
)
def test_objectives_that_contradict_each_other(
    maximize: list[str], minimize: list[str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        parse_objectives(maximize, minimize)
