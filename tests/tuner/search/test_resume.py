"""A study that is taken up again: more of it, wider, under other SLOs, and never twice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from storage import Database, Study, open_database
from tests.tuner.search.synthetic import (
    DEFAULTS,
    LOAD,
    FakeTarget,
    MemoryLedger,
    Silent,
    Surface,
    goal_of,
    search_on,
)
from tuner.search.budget import Budget, parse_budget, plan
from tuner.search.ledger import StudyLedger
from tuner.search.noise import PATIENCE
from tuner.search.objective import Objective
from tuner.search.optimize import FAILURE_LIMIT, optimize
from tuner.search.pace import Pace
from tuner.search.proposals import Proposer, history_name
from tuner.search.session import Search
from tuner.search.space import joint_space
from tuner.search.trial import Lab
from tuner.search.trials import explored, trials_of
from tuner.search.workers import Workers

KNOBS = FakeTarget().knobs()


def planned(budget: Budget) -> dict[str, object]:
    return {"budget": budget, "plan": plan(budget, window_s=10.0, warmup_s=2.0)}


def search(surface: Surface, trials: int, ledger: MemoryLedger) -> Search:
    return search_on(surface, ledger=ledger, **planned(parse_budget(f"{trials} trials")))  # type: ignore[arg-type]


def test_a_larger_budget_searches_on_and_confirms_again() -> None:
    surface, ledger = Surface(FakeTarget()), MemoryLedger()
    optimize(search(surface, 16, ledger))
    before = list(ledger.outcomes)
    assert len(before) <= 16
    optimize(search(surface, 34, ledger))
    assert ledger.outcomes[: len(before)] == before
    assert len(explored(trials_of(ledger.outcomes))) > len(explored(trials_of(before)))
    assert 16 < len(ledger.outcomes) <= 34
    seeds = [o.seed for o in ledger.outcomes if o.stage == "confirm" and o.config == DEFAULTS]
    assert len(set(seeds)) == len(seeds)


def test_the_same_budget_measures_nothing_more() -> None:
    surface, ledger = Surface(FakeTarget()), MemoryLedger()
    first = optimize(search(surface, 16, ledger))
    calls = surface.calls
    again = optimize(search(surface, len(ledger.outcomes), ledger))
    assert surface.calls == calls
    assert again.answer == first.answer


def test_a_candidate_that_joins_later_is_paired_with_runs_of_its_own_rounds() -> None:
    """Pairs are runs of one round: a baseline measured long ago says nothing of today."""
    surface, ledger = Surface(FakeTarget()), MemoryLedger()
    optimize(search(surface, 14, ledger))
    optimize(search(surface, 40, ledger))
    order = [(o.seed, o.config == DEFAULTS) for o in ledger.outcomes if o.stage == "confirm"]
    for seed in {seed for seed, _ in order}:
        places = [i for i, (at, _) in enumerate(order) if at == seed]
        assert places == list(range(places[0], places[0] + len(places)))


class Sitting:
    """One process's part of a study in a database, on a synthetic server."""

    def __init__(self, database: Database, surface: Surface) -> None:
        self.database, self.surface = database, surface

    def run(
        self, trials: int, slo: str = "ttft_p95<500ms", knobs: tuple[str, ...] = (),
        objective: Objective | None = None, loads: tuple[str, ...] = (LOAD,),
    ) -> Search:  # fmt: skip
        goal = goal_of(slo, *([objective] if objective is not None else []), loads=loads)
        space = joint_space(KNOBS, knobs)
        budget = parse_budget(f"{trials} trials")
        trial_plan = plan(budget, window_s=10.0, warmup_s=2.0, loads=len(loads))
        study = self._study()
        ledger = StudyLedger(self.database, study, goal.slos, goal.loads[0])
        workers = Workers("s", self.database.optuna_storage())
        proposer = Proposer(
            space, goal, sampler_name="tpe", seed=workers.place,
            name=history_name("s", space, goal), storage=self.database.optuna_storage(),
            worker=workers.me, alive=workers.alive,
        )  # fmt: skip
        with workers.turn():
            proposer.recover(trials_of(ledger.outcomes))
        lab = Lab(
            self.surface.target, goal.loads[0], goal.slos, self.surface, 10.0, 2.0,
            clock=self.surface.clock,
        )  # fmt: skip
        made = Search(
            lab, ledger, proposer, space, goal, trial_plan,
            Pace(budget, trial_plan, ledger, self.surface.clock), Silent(), dict(DEFAULTS), 0,
            workers,
        )  # fmt: skip
        try:
            optimize(made)
        finally:
            workers.close()
        return made

    def _study(self) -> Study:
        found = self.database.get_study("s")
        return found if found is not None else self.database.create_study("s")


@pytest.fixture
def sitting(tmp_path: Path) -> object:
    with open_database(tmp_path / "a.db") as database:
        yield Sitting(database, Surface(FakeTarget()))


def keys(search: Search) -> list[tuple[object, ...]]:
    return [(o.stage, o.seed, *sorted(o.config.items())) for o in search.ledger.outcomes]


def test_wider_ranges_keep_what_was_measured_and_use_it(sitting: Sitting) -> None:
    narrow = sitting.run(14, knobs=("chunk_size=1024:2048", "max_num_seqs=64,128"))
    calls = sitting.surface.calls
    wide = sitting.run(30, knobs=("chunk_size=64:2048", "max_num_seqs=8,64,128"))
    assert keys(wide)[: len(keys(narrow))] == keys(narrow)
    assert len(set(keys(wide))) == len(keys(wide))
    assert sitting.surface.calls > calls
    chosen = [o.config["chunk_size"] for o in wide.ledger.outcomes]
    assert min(chosen) < 1024  # type: ignore[type-var]
    told = wide.proposer._study.trials
    known = [t for t in told if t.user_attrs.get("config", {}).get("chunk_size", 0) >= 1024]
    assert len(known) >= 3


def test_wider_ranges_are_searched_where_the_narrow_ones_had_no_more_to_find(
    sitting: Sitting,
) -> None:
    few = ("chunk_size=512:1000", "max_num_seqs=32:64")
    narrow = sitting.run(60, knobs=few)
    assert "none of the last" in "".join(narrow.events.notes)  # type: ignore[attr-defined]
    searched = len(explored(narrow.trials))
    again = sitting.run(60, knobs=few)
    assert len(explored(again.trials)) == searched
    wide = sitting.run(80, knobs=("chunk_size=512:1000", "max_num_seqs=32:256"))
    fresh = explored(wide.trials)[searched:]
    assert len(fresh) >= PATIENCE
    assert max(trial.config["max_num_seqs"] for trial in fresh) > 64  # type: ignore[type-var]


def test_a_study_that_ended_by_failures_tries_again(sitting: Sitting) -> None:
    sitting.surface.target.crashes = lambda config: config != DEFAULTS
    failed = sitting.run(40)
    assert sum(trial.failed for trial in failed.trials) == FAILURE_LIMIT
    sitting.surface.target.crashes = lambda config: False  # the machine was mended
    mended = sitting.run(40)
    assert len(mended.trials) > len(failed.trials)
    assert sum(trial.failed for trial in mended.trials) == FAILURE_LIMIT


def test_another_slo_judges_again_and_measures_only_what_is_new(sitting: Sitting) -> None:
    first = sitting.run(16)
    second = sitting.run(16, slo="ttft_p95<5s")
    assert keys(second)[: len(keys(first))] == keys(first)
    assert all(o.meets_by_estimate for o in second.ledger.outcomes if o.ok)
    searched = [key[2:] for key in keys(second) if key[0] in ("sweep", "search")]
    assert len(set(searched)) == len(searched)
    assert len(second.ledger.outcomes) <= 16


def test_another_objective_reads_the_same_measurements(sitting: Sitting) -> None:
    first = sitting.run(14)
    calls = sitting.surface.calls
    second = sitting.run(len(first.ledger.outcomes), objective=Objective("ttft_p95", "minimize"))
    assert sitting.surface.calls == calls
    told = [t for t in second.proposer._study.trials if t.user_attrs.get("config") == DEFAULTS]
    assert all(0.3 < t.values[0] < 2 for t in told)


@pytest.mark.parametrize("stop_at", [1, 3, 7, 12, 16])
def test_an_interrupted_study_asks_again_for_what_was_lost(sitting: Sitting, stop_at: int) -> None:
    sitting.surface.interrupt_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        sitting.run(18)
    done = sitting.run(18)
    assert len(set(keys(done))) == len(keys(done))
    assert sum(o.stage == "baseline" for o in done.ledger.outcomes) == 2
    rounds: dict[int, int] = {}
    for outcome in done.ledger.outcomes:
        if outcome.stage == "confirm":
            rounds[outcome.seed] = rounds.get(outcome.seed, 0) + 1
    assert all(count >= 2 for count in rounds.values())  # no half round is left behind
    running = [t for t in done.proposer._study.trials if not t.state.is_finished()]
    assert [t for t in running if t.state.name == "RUNNING"] == []


def test_stored_trials_come_back_as_they_were(sitting: Sitting) -> None:
    done = sitting.run(14)
    study = sitting.database.get_study("s")
    assert study is not None
    again = StudyLedger(sitting.database, study, done.goal.slos, done.goal.loads[0])
    for before, after in zip(done.ledger.outcomes, again.outcomes, strict=True):
        assert (before.config, before.seed, before.stage, before.state) == (
            after.config, after.seed, after.stage, after.state,
        )  # fmt: skip
        assert before.ended_early == after.ended_early
        assert before.verdict is not None
        assert after.verdict is not None
        assert dataclasses.replace(before.verdict) == dataclasses.replace(after.verdict)
