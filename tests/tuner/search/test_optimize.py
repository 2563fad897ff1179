"""The joint search on a synthetic server: what it finds, when it stops, what it never does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tuner.search.synthetic import (
    DEFAULTS,
    FakeTarget,
    MemoryLedger,
    Surface,
    search_on,
)
from tuner.search.budget import Plan, parse_budget, plan
from tuner.search.optimize import Search, optimize
from tuner.search.trials import Config

BUDGET = parse_budget("22 trials")


def stages(ledger: MemoryLedger) -> list[str]:
    return [outcome.stage for outcome in ledger.outcomes]


@pytest.mark.parametrize("seed", range(4))
def test_finds_and_confirms_what_meets_the_slo(seed: int) -> None:
    search = search_on(Surface(FakeTarget()), budget=BUDGET, seed=seed)
    decision = optimize(search)
    assert decision.answer == "improved"
    assert decision.met
    assert decision.baseline.verdict.state == "fail"
    assert decision.best_config is not None
    assert float(decision.best_config["chunk_size"]) < 1200
    assert len(search.ledger.outcomes) <= 22


def test_baseline_is_measured_twice_and_first() -> None:
    search = search_on(Surface(FakeTarget()), budget=BUDGET)
    optimize(search)
    found = search.ledger.outcomes
    assert [o.stage for o in found[:2]] == ["baseline", "baseline"]
    assert all(o.config == DEFAULTS for o in found[:2])
    assert found[0].seed != found[1].seed
    assert found[2].stage == "sweep"


def test_no_trial_breaks_the_link_between_knobs() -> None:
    surface = Surface(FakeTarget())
    optimize(search_on(surface, budget=parse_budget("40 trials"), sampler="random"))
    assert all(c["chunk_size"] >= c["max_num_seqs"] for c in surface.target.applied)


def test_same_seed_same_trials() -> None:
    first, second = (search_on(Surface(FakeTarget()), budget=BUDGET, seed=7) for _ in range(2))
    optimize(first)
    optimize(second)
    assert [o.config for o in first.ledger.outcomes] == [o.config for o in second.ledger.outcomes]


def test_confirmation_pairs_share_seeds_that_the_search_never_used() -> None:
    search = search_on(Surface(FakeTarget()), budget=BUDGET)
    optimize(search)
    explored = {o.seed for o in search.ledger.outcomes if o.stage != "confirm"}
    confirmed = [o for o in search.ledger.outcomes if o.stage == "confirm"]
    assert confirmed
    assert not explored & {o.seed for o in confirmed}
    for seed in {o.seed for o in confirmed}:
        assert any(o.config == DEFAULTS for o in confirmed if o.seed == seed)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_where_half_of_the_space_crashes_the_other_half_is_chosen_from(sampler: str) -> None:
    """How often the samplers go there is in test_proposals.py."""
    target = FakeTarget(crashes=lambda c: float(c["max_num_seqs"]) < 32)
    search = search_on(Surface(target), budget=parse_budget("26 trials"), seed=1, sampler=sampler)
    decision = optimize(search)
    assert decision.answer == "improved"
    assert decision.met
    crashed = [o for o in search.ledger.outcomes if o.state == "failed"]
    assert crashed
    assert all(o.failure_kind == "configuration" for o in crashed)
    assert float(decision.chosen_config["max_num_seqs"]) >= 32


def rounds_of(search: Search) -> list[list[object]]:
    """Configurations of each round of the confirmation, in order of time."""
    found: dict[int, list[object]] = {}
    for outcome in search.ledger.outcomes:
        if outcome.stage == "confirm":
            found.setdefault(outcome.seed, []).append(outcome.config)
    return list(found.values())


def test_three_finalists_and_the_baseline_share_each_round_up_to_the_first_look() -> None:
    plan = Plan(10.0, 2.0, search=12, confirm_rounds=5, finalists=3)
    search = search_on(Surface(FakeTarget()), budget=parse_budget("30 trials"), plan=plan)
    optimize(search)
    first, second, *rest = rounds_of(search)
    assert sorted(map(str, first)) == sorted(map(str, second))
    assert len(first) == 4
    assert DEFAULTS in first
    assert all(len(members) <= 2 for members in rest)


def test_a_baseline_that_misses_the_slos_is_not_measured_on_and_on() -> None:
    """With it go two rounds, for what the change costs; then the candidate has to show itself."""
    surface = Surface(FakeTarget(), rate=lambda config: 2.0)  # few requests: no run is enough
    search = search_on(surface, "ttft_p95<350ms", budget=parse_budget("30 trials"))
    decision = optimize(search)
    assert decision.baseline.verdict.state == "fail"
    assert decision.answer == "improved"
    together = [DEFAULTS in members for members in rounds_of(search)]
    assert together[:2] == [True, True]
    assert len(together) > 2
    assert True not in together[2:]


def test_infeasible_everything_says_so() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 2.0)
    decision = optimize(search_on(surface, budget=BUDGET))
    assert decision.answer == "none_feasible"
    assert not decision.met
    assert decision.best_config is None


def test_keep_the_baseline_when_nothing_is_better() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 0.1, rate=lambda c: 20.0, noise=0.02)
    decision = optimize(search_on(surface, budget=BUDGET))
    assert decision.answer == "keep_baseline"
    assert decision.met
    assert decision.chosen_config == DEFAULTS


def test_the_budget_of_trials_is_kept() -> None:
    for count in (5, 9, 15):
        search = search_on(Surface(FakeTarget()), budget=parse_budget(f"{count} trials"))
        optimize(search)
        assert len(search.ledger.outcomes) <= count


def test_the_budget_of_time_is_kept_and_used() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 2.0)  # nothing to confirm: all is searched
    began_s = surface.clock_s
    optimize(search_on(surface, budget=parse_budget("5m")))
    assert 300 - 2 * 13 < surface.clock_s - began_s <= 305


@pytest.mark.parametrize("stop_at", [1, 2, 4, 9, 14, 17])
def test_resume_after_an_interruption_at_any_stage(stop_at: int) -> None:
    surface = Surface(FakeTarget(), interrupt_at=stop_at)
    ledger = MemoryLedger()
    search = search_on(surface, budget=BUDGET, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        optimize(search)
    assert len(ledger.outcomes) == stop_at - 1
    kept = list(ledger.outcomes)
    decision = optimize(search_on(surface, budget=BUDGET, ledger=ledger))
    assert ledger.outcomes[: len(kept)] == kept
    assert decision.answer == "improved"
    assert stages(ledger).count("baseline") == 2
    assert len(ledger.outcomes) <= 22


@pytest.mark.parametrize("seed", range(3))
def test_five_minutes_suffice_on_a_machine_like_the_demos(seed: int) -> None:
    """Eight clients of a slow CPU: some 60 requests per run, runs that differ by 10 %, a baseline
    that misses its bound by a third and no gain in throughput."""
    rng = np.random.default_rng(seed)

    def ttft(config: Config) -> float:
        chunk = min(1.0, float(config["chunk_size"]) / 1000)
        few = 0.9 if float(config["max_num_seqs"]) < 6 else 0.0
        return (0.17 + 0.38 * chunk**0.8 + few) * float(np.exp(rng.normal(0, 0.1)))

    surface = Surface(FakeTarget(), ttft=ttft, rate=lambda config: 7.4, noise=0.1)
    budget = parse_budget("270s")  # what calibration leaves
    planned = plan(budget)
    search = search_on(
        surface, budget=budget, plan=planned, seed=seed,
        loads=("prompt=64,output=16,concurrency=8",),
    )  # fmt: skip
    lab = replace(search.lab, window_s=planned.window_s, warmup_s=planned.warmup_s)
    began_s = surface.clock_s
    decision = optimize(replace(search, lab=lab))
    assert decision.answer == "improved"
    assert decision.met
    assert decision.baseline.verdict.state == "fail"
    assert surface.clock_s - began_s <= 275
