"""The highest load that meets the SLOs: brackets, dominated configurations, honest comparisons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.tuner.search.synthetic import (
    DEFAULTS,
    FakeTarget,
    MemoryLedger,
    Surface,
    goal_of,
    search_on,
)
from tuner.measure import Measurement
from tuner.search.budget import parse_budget, plan
from tuner.search.capacity import MOST_PROBES, RESOLUTION, Capacity, bracket_of
from tuner.search.decide import decide
from tuner.search.goal import is_complete
from tuner.search.objective import CAPACITY, Objective
from tuner.search.optimize import optimize
from tuner.search.session import Search, measure
from tuner.search.trials import Config, trials_of
from tuner.workload import Workload

OBJECTIVE = Objective(CAPACITY)
BUDGET = parse_budget("26 trials")
OPEN, CLOSED = "prompt=64,output=8,rate=10", "prompt=64,output=8,concurrency=8"


def served(config: Config) -> float:
    """The load at which the p95 of TTFT reaches 500 ms."""
    return 24.0 if config["chunk_size"] < 1000 else 12.0


def ttft(config: Config, load: Workload) -> float:
    """Crosses 500 ms (p95: 1.18 × the median) where `served` says."""
    return 0.5 / 1.18 * (load.arrivals.level / served(config)) ** 2


def surface(target: FakeTarget | None = None, **options: object) -> Surface:
    return Surface(
        target or FakeTarget(), ttft=ttft, rate=lambda config, load: 25.0, by_load=True,
        noise=0.01, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def search(made: Surface, load: str = OPEN, ledger: MemoryLedger | None = None) -> Search:
    return search_on(made, "ttft_p95<500ms", OBJECTIVE, budget=BUDGET, loads=(load,), ledger=ledger)


@pytest.mark.parametrize("load", [OPEN, CLOSED])
def test_a_bracket_holds_the_true_capacity(load: str) -> None:
    trial = measure(search(surface(), load), DEFAULTS, "baseline", 0)
    found = bracket_of(trial.parts)
    assert found.met <= served(DEFAULTS) * 1.03
    assert found.missed >= served(DEFAULTS) * 0.97
    assert found.missed / found.met <= RESOLUTION * 1.001 or found.missed - found.met <= 1
    assert len(trial.parts) <= MOST_PROBES
    levels = [part.workload.arrivals.level for part in trial.parts if part.workload]
    assert len(set(levels)) == len(levels)
    assert len({part.seed for part in trial.parts}) == 1


def test_whole_numbers_of_clients() -> None:
    trial = measure(search(surface(), CLOSED), DEFAULTS, "baseline", 0)
    levels = [part.workload.arrivals.level for part in trial.parts if part.workload]
    assert all(level == int(level) >= 1 for level in levels)


def test_a_clearly_dominated_configuration_stops_at_one_probe() -> None:
    """Its first probe is at the capacity of the best, which it misses for certain."""
    made = search(surface())
    small = DEFAULTS | {"chunk_size": 256}
    best = measure(made, small, "search", 7)
    other = measure(made, DEFAULTS | {"chunk_size": 4096}, "search", 8)
    assert len(other.parts) == 1
    assert other.parts[0].workload is not None
    assert other.parts[0].workload.arrivals.level == bracket_of(best.parts).met
    reading = made.goal.read(other, made.trials)
    assert not reading.meets
    assert reading.values[0] is not None
    assert reading.values[0] < bracket_of(best.parts).met
    assert reading.margins[-1] < 0  # beaten, not broken


def test_finds_and_confirms_a_higher_capacity_with_its_bracket() -> None:
    made = search(surface())
    decision = optimize(made)
    assert decision.answer == "improved"
    assert float(decision.chosen_config["chunk_size"]) < 1000
    assert decision.gain is not None
    assert decision.gain.low < 2.0 < decision.gain.high
    assert decision.gain.low > 1.3
    assert "half of both brackets" in decision.gain.method
    capacity = decision.chosen.summary[CAPACITY]
    assert capacity.low <= 24.0 <= capacity.high
    assert capacity.unit == "req/s"


def test_equal_capacities_are_no_gain() -> None:
    made = Surface(
        FakeTarget(), ttft=lambda c, load: 0.42 * (load.arrivals.level / 12) ** 2,
        rate=lambda c, load: 25.0, by_load=True, noise=0.01,
    )  # fmt: skip
    decision = optimize(search(made))
    assert decision.answer == "keep_baseline"
    for _, gain in decision.gains:
        assert gain.low < 1 < gain.high


def test_nothing_served_is_no_capacity() -> None:
    made = Surface(FakeTarget(), ttft=lambda c, load: 2.0, rate=lambda c, load: 25.0, by_load=True)
    decision = optimize(search(made))
    assert decision.answer == "none_feasible"
    assert not decision.baseline.summary[CAPACITY].measured
    assert "missed down to" in decision.baseline.summary[CAPACITY].reason


@pytest.mark.parametrize("stop_at", [2, 5, 9, 14, 30])
def test_a_trial_that_was_cut_short_goes_on_where_it_was(stop_at: int) -> None:
    made = surface(interrupt_at=stop_at)
    ledger = MemoryLedger()
    with pytest.raises(KeyboardInterrupt):
        optimize(search(made, ledger=ledger))
    kept = list(ledger.outcomes)
    assert len(kept) == stop_at - 1
    decision = optimize(search(made, ledger=ledger))
    assert ledger.outcomes[: len(kept)] == kept
    assert decision.answer == "improved"
    assert len(trials_of(ledger.outcomes)) <= 26
    for trial in trials_of(ledger.outcomes):
        levels = [part.workload.arrivals.level for part in trial.parts if part.workload]
        assert len(set(levels)) == len(levels)


def test_an_open_bracket_claims_no_upper_end() -> None:
    goal = goal_of("ttft_p95<500ms", OBJECTIVE)
    assert isinstance(goal, Capacity)
    made = Surface(FakeTarget(), ttft=lambda c, load: 0.01, rate=lambda c, load: 25.0, by_load=True)
    searching = search(made)
    trial = measure(searching, DEFAULTS, "baseline", 0)
    assert math.isinf(bracket_of(trial.parts).missed)
    pooled = searching.goal.pooled([trial])
    assert pooled is not None
    assert math.isinf(pooled.summary[CAPACITY].high)
    assert goal.compare([trial], [trial], OBJECTIVE) is None


def test_the_decision_needs_only_what_is_stored() -> None:
    made = search(surface())
    decision = optimize(made)
    again = decide(made.ledger.outcomes, DEFAULTS, made.goal)
    assert again == decision


def test_breaking_under_more_load_is_the_end_of_the_capacity_not_of_the_trial() -> None:
    made = Surface(
        FakeTarget(), ttft=lambda c, load: 0.1, rate=lambda c, load: 25.0, by_load=True,
        noise=0.01,
    )  # fmt: skip
    searching = search(made)

    def breaks_above_20(*words: object, **named: object) -> Measurement:
        load = words[1]
        assert isinstance(load, Workload)
        made.dead = lambda config: load.arrivals.level > 20
        return made(*words, **named)  # type: ignore[arg-type]

    searching = replace(searching, lab=replace(searching.lab, measure=breaks_above_20))
    trial = measure(searching, DEFAULTS, "baseline", 0)
    found = bracket_of(trial.parts)
    assert trial.ok
    assert 20 / RESOLUTION / 1.01 <= found.certain_met <= 20 < found.certain_missed
    assert found.certain_missed <= 20 * RESOLUTION * 1.01
    dead = replace(searching, lab=replace(searching.lab, measure=made))
    made.dead = lambda config: True
    assert measure(dead, DEFAULTS | {"chunk_size": 512}, "baseline", 0).failed


def timed(seconds: int, ledger: MemoryLedger, made: Surface) -> Search:
    budget = parse_budget(f"{seconds}s")
    return search_on(
        made, "ttft_p95<500ms", OBJECTIVE, budget=budget, loads=(CLOSED,), ledger=ledger,
        plan=plan(budget, window_s=10.0, warmup_s=2.0, loads=4),
    )  # fmt: skip


@pytest.mark.parametrize("seconds", [20, 60, 100, 150, 300])
def test_a_budget_in_time_is_kept(seconds: int) -> None:
    """However many levels a trial probes: no measurement begins that does not fit."""
    made, ledger = surface(), MemoryLedger()
    began_s = made.clock()
    decision = optimize(timed(seconds, ledger, made))
    longest_s = max(outcome.spent_s for outcome in ledger.outcomes)
    assert made.clock() - began_s <= seconds + 0.1 * longest_s
    assert decision.baseline.summary[CAPACITY].n >= 1


def test_baselines_that_the_time_cut_short_go_on_with_a_larger_budget() -> None:
    made, ledger = surface(), MemoryLedger()
    optimize(timed(60, ledger, made))
    kept = list(ledger.outcomes)
    assert not is_complete(
        goal_of("ttft_p95<500ms", OBJECTIVE, loads=(CLOSED,)), trials_of(kept)[-1]
    )
    searching = timed(900, ledger, made)
    optimize(searching)
    assert ledger.outcomes[: len(kept)] == kept
    baselines = [t for t in trials_of(ledger.outcomes) if t.stage == "baseline"]
    assert len(baselines) == 2
    assert all(is_complete(searching.goal, trial) for trial in baselines)
    assert len(trials_of(ledger.outcomes)) > 2
