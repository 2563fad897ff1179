"""Several objectives: what none beats in all is found, confirmed and told."""

from __future__ import annotations

import pytest

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.report.front import front_dicts, front_lines
from tuner.search.budget import parse_budget, plan
from tuner.search.decide import decide
from tuner.search.front import front_of, spread_out
from tuner.search.levels import LOOKS
from tuner.search.objective import Objective
from tuner.search.optimize import optimize
from tuner.search.session import Search, measure
from tuner.search.trials import Config

OBJECTIVES = (Objective("output_tps"), Objective("ttft_p95", "minimize"))


def rate(config: Config) -> float:
    return 10 + float(config["chunk_size"]) / 200


def ttft(config: Config) -> float:
    return 0.05 + float(config["chunk_size"]) / 10_000


def search(*, sampler: str = "nsga2", slo: str = "ttft_p95<2s", trials: int = 30) -> Search:
    surface = Surface(FakeTarget(), ttft=ttft, rate=rate, noise=0.01)
    return search_on(
        surface, slo, *OBJECTIVES, budget=parse_budget(f"{trials} trials"), sampler=sampler
    )


@pytest.mark.parametrize("sampler", ["nsga2", "gp", "tpe", "random"])
def test_the_front_trades_one_objective_for_the_other(sampler: str) -> None:
    made = search(sampler=sampler)
    optimize(made)
    front = front_of(made.goal, made.trials)
    assert len(front) >= 3
    speeds, waits = [p.values[0] for p in front], [p.values[1] for p in front]
    assert speeds == sorted(speeds, reverse=True)
    assert waits == sorted(waits, reverse=True)


def test_what_is_beaten_or_misses_an_slo_is_not_on_it() -> None:
    made = search(slo="ttft_p95<300ms")
    best = DEFAULTS | {"chunk_size": 1024, "max_num_seqs": 64}
    surface = made.lab.measure
    assert isinstance(surface, Surface)
    surface.rate = lambda c: 30.0 if c == best else rate(c)
    for number, chunk in enumerate((256, 1024, 3000)):
        measure(made, DEFAULTS | {"chunk_size": chunk, "max_num_seqs": 64}, "search", number)
    front = front_of(made.goal, made.trials)
    assert [p.config["chunk_size"] for p in front] == [1024, 256]
    order = spread_out(front, made.goal)
    assert [config["chunk_size"] for config in order] == [1024, 256]


def test_gains_are_claimed_for_each_objective_at_a_shared_level() -> None:
    made = search(trials=40)
    decision = optimize(made)
    assert {objective.key for objective, _ in decision.gains} == {"output_tps", "ttft_p95"}
    for _, gain in decision.gains:
        assert gain.confidence == pytest.approx(1 - 0.05 / (decision.candidates * 4 * 2))
    if decision.answer == "improved":
        assert "worse" not in [gain.outcome for _, gain in decision.gains]


def test_the_front_is_shown_and_stored_with_intervals() -> None:
    made = search()
    optimize(made)
    lines = front_lines(made.goal, made.trials)
    assert lines[0].startswith("Pareto front (maximize output_tps, minimize ttft_p95)")
    assert all(" n=" in line for line in lines[2:])
    stored = front_dicts(made.goal, made.trials)
    assert len(stored) == len(lines) - 2
    assert set(stored[0]["figures"]) == {"output_tps", "ttft_p95"}
    assert stored[0]["figures"]["ttft_p95"]["low"] is not None


def test_one_objective_has_no_front() -> None:
    surface = Surface(FakeTarget())
    made = search_on(surface, budget=parse_budget("9 trials"))
    measure(made, DEFAULTS, "baseline", 0)
    assert front_lines(made.goal, made.trials) == []
    assert front_dicts(made.goal, made.trials) == []


def test_what_was_promising_and_not_confirmed_is_told_with_the_budget_that_it_takes() -> None:
    made = search(trials=5)
    for seed in range(2):
        measure(made, DEFAULTS, "baseline", seed)
    measure(made, DEFAULTS | {"chunk_size": 1024}, "sweep", 9)
    found = decide(made.ledger.outcomes, DEFAULTS, made.goal)
    assert [p.config["chunk_size"] for p in front_of(made.goal, made.trials)] == [2048, 1024]
    assert found.answer == "undecided"
    assert found.reason.startswith("chunk_size=1024 was promising (ttft_p95 ")
    assert "the budget ended before it could be confirmed" in found.reason
    assert '"10 trials"' in found.reason

    larger = search_on(
        Surface(FakeTarget(), ttft=ttft, rate=rate, noise=0.01), "ttft_p95<2s", *OBJECTIVES,
        budget=parse_budget("10 trials"), plan=plan(parse_budget("10 trials")),
    )  # fmt: skip
    larger.ledger.outcomes.extend(made.ledger.outcomes)
    decision = optimize(larger)
    assert decision.gains, "the stated budget did not confirm it"
    assert decision.gains[0][1].n >= LOOKS[0]


def test_no_configuration_promised_to_be_better_only_where_none_did() -> None:
    made = search(trials=5)
    for seed in range(2):
        measure(made, DEFAULTS, "baseline", seed)
    surface = made.lab.measure
    assert isinstance(surface, Surface)
    surface.rate, surface.ttft = (lambda c: 5.0), (lambda c: 0.9)
    measure(made, DEFAULTS | {"chunk_size": 1024}, "sweep", 9)
    found = decide(made.ledger.outcomes, DEFAULTS, made.goal)
    assert found.answer == "keep_baseline"
    assert found.reason == "no configuration promised to be better"
