"""What may be claimed: pooled figures, paired gains, and the answers a study can give."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from storage.rows import Stage
from tests.tuner.search.synthetic import (
    DEFAULTS,
    FakeTarget,
    Surface,
    goal_of,
    rate,
    search_on,
    ttft_s,
)
from tuner.search.budget import parse_budget
from tuner.search.decide import Config, Decision, decide
from tuner.search.objective import Objective
from tuner.search.pool import pool
from tuner.search.trial import Outcome, run_trial
from tuner.search.trials import Trial
from tuner.server_side import ServerSide
from tuner.slo import parse_slos
from tuner.stats import Estimate

SLOS = parse_slos(["ttft_p95<500ms"])
GOAL = goal_of("ttft_p95<500ms")
SMALL: Config = DEFAULTS | {"chunk_size": 256}


def runs(
    config: Config, seeds: range, stage: Stage, *,
    ttft: Callable[[Config], float] = ttft_s, speed: Callable[[Config], float] = rate,
    noise: float = 0.01,
) -> list[Outcome]:  # fmt: skip
    made = []
    for seed in seeds:
        surface = Surface(FakeTarget(), ttft=ttft, rate=speed, noise=noise)
        surface.calls = seed * 10 + (config == SMALL)
        lab = search_on(surface, budget=parse_budget("9 trials")).lab
        outcome = run_trial(lab, config, stage=stage, seed=seed)
        made.append(outcome)
    return made


def answer(
    ttft: Callable[[Config], float], speed: Callable[[Config], float], noise: float = 0.01
) -> Decision:
    """Baseline against SMALL, five rounds."""
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=ttft, speed=speed, noise=noise)
    for seed in range(100, 105):
        for config in (DEFAULTS, SMALL):
            one = range(seed, seed + 1)
            outcomes += runs(config, one, "confirm", ttft=ttft, speed=speed, noise=noise)
    return decide(outcomes, DEFAULTS, GOAL)


def small(yes: float, no: float) -> Callable[[Config], float]:
    return lambda config: yes if config == SMALL else no


def test_meeting_the_slo_is_the_gain_when_the_baseline_misses_it() -> None:
    found = answer(small(0.2, 0.7), small(18, 20))
    assert (found.answer, found.best_config, found.met) == ("improved", SMALL, True)
    assert found.gain is not None
    assert found.gain.outcome == "worse"  # and it is said so: slower, but within the SLO
    assert found.gain.n == 5


def test_a_gain_beyond_the_noise_is_confirmed() -> None:
    found = answer(small(0.2, 0.2), small(30, 20))
    assert found.answer == "improved"
    assert found.gain is not None
    assert found.gain.low > 1.3
    assert found.gain.ratio == pytest.approx(1.5, rel=0.1)


def test_no_gain_is_claimed_from_noise() -> None:
    found = answer(small(0.2, 0.2), small(20.4, 20), noise=0.1)
    assert found.answer == "keep_baseline"
    assert found.best_config is None
    assert found.chosen_config == DEFAULTS


def test_a_candidate_that_misses_when_confirmed_is_not_recommended() -> None:
    found = answer(small(0.9, 0.2), small(40, 20))
    assert found.answer == "keep_baseline"
    assert "missed the SLOs" in found.reason


def test_what_is_not_shown_to_meet_the_slos_is_not_called_kept() -> None:
    """Both too close to the bound to decide."""
    found = answer(small(0.42, 0.42), small(20, 20))
    assert (found.answer, found.best_config) == ("undecided", None)
    assert found.reason.startswith("neither the baseline nor the best candidate is shown")


def test_meeting_where_the_baseline_is_undecided_is_not_called_better() -> None:
    found = answer(small(0.1, 0.42), small(19.36, 20))  # as many tokens within the window
    assert (found.answer, found.best_config, found.met) == ("undecided", SMALL, True)
    assert "whether the baseline meets them too is undecided" in found.reason


def test_both_missing_is_none_feasible() -> None:
    found = answer(small(0.9, 0.9), small(40, 20))
    assert found.answer == "none_feasible"
    assert not found.met
    assert found.reason == "measured were the baseline and 1 other configuration"


def test_a_search_that_met_the_slos_by_luck_is_told() -> None:
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=small(0.9, 0.9))
    outcomes += runs(SMALL, range(5, 6), "search", ttft=small(0.2, 0.9))
    for seed in range(100, 105):
        for config in (DEFAULTS, SMALL):
            outcomes += runs(config, range(seed, seed + 1), "confirm", ttft=small(0.9, 0.9))
    found = decide(outcomes, DEFAULTS, GOAL)
    assert (found.answer, found.compared_config) == ("none_feasible", SMALL)
    assert found.reason.startswith("1 of 1 other configuration met them in a measurement, but")


def test_nothing_is_said_of_configurations_that_were_not_measured() -> None:
    found = decide(runs(DEFAULTS, range(2), "baseline", ttft=small(0.9, 0.9)), DEFAULTS, GOAL)
    assert (found.answer, found.met) == ("undecided", False)
    assert "only the baseline has a result" in found.reason
    met = decide(runs(DEFAULTS, range(2), "baseline", ttft=small(0.9, 0.1)), DEFAULTS, GOAL)
    assert (met.answer, met.recommends, met.met) == ("undecided", False, True)
    assert "only the baseline has a result" in met.reason


def test_a_candidate_that_was_never_measured_again_is_undecided() -> None:
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=small(0.2, 0.9))
    outcomes += runs(SMALL, range(5, 6), "search", ttft=small(0.2, 0.9))
    found = decide(outcomes, DEFAULTS, GOAL)
    assert (found.answer, found.best_config, found.met) == ("undecided", None, False)
    assert "1 other configuration met them in a measurement that was not repeated" in found.reason


def test_a_bad_day_at_the_start_does_not_speak_against_the_baseline() -> None:
    """The machine was slow while the baseline was first measured, and steady ever since."""
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=small(0.2, 0.9))
    for seed in range(100, 105):
        for config in (DEFAULTS, SMALL):
            one = range(seed, seed + 1)
            outcomes += runs(config, one, "confirm", ttft=small(0.3, 0.3), speed=small(20, 20))
    found = decide(outcomes, DEFAULTS, GOAL)
    assert found.baseline.verdict.state == "pass"
    assert found.answer == "keep_baseline"


def test_the_searchs_own_figures_do_not_speak_for_a_candidate() -> None:
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=small(0.2, 0.7))
    outcomes += runs(SMALL, range(5, 8), "search", ttft=small(0.2, 0.7))
    assert decide(outcomes, DEFAULTS, GOAL).best_config is None


def test_pooling_adds_samples_and_averages_rates() -> None:
    outcomes = runs(SMALL, range(3), "confirm")
    whole = pool(outcomes, SLOS)
    assert whole is not None
    sent = [o.measurement.counts["sent"] for o in outcomes if o.measurement]
    values = [o.measurement.summary["output_tps"].value for o in outcomes if o.measurement]
    assert whole.runs == 3
    assert whole.summary["ttft_p95"].n == sum(sent)
    assert whole.summary["output_tps"].value == pytest.approx(sum(values) / 3)
    assert whole.summary["output_tps"].low < min(values)


def test_pooling_leaves_the_runs_as_they_were() -> None:
    outcomes = runs(SMALL, range(2), "confirm")
    before = [o.measurement.records[0].scheduled_s for o in outcomes if o.measurement]
    pool(outcomes, SLOS)
    assert before == [o.measurement.records[0].scheduled_s for o in outcomes if o.measurement]


def test_failed_runs_are_no_result() -> None:
    surface = Surface(FakeTarget(), dead=lambda c: True)
    lab = search_on(surface, budget=parse_budget("9 trials")).lab
    failed = run_trial(lab, DEFAULTS, stage="search", seed=0)
    assert pool([failed], SLOS) is None
    reading = GOAL.read(Trial((failed,)), [])
    assert (reading.values, reading.meets) == ((None,), False)
    assert reading.margins[-1] > 0


def queued(outcomes: list[Outcome], waits: list[tuple[int, int]]) -> None:
    """Each run's server counted (waits within 100 ms, all waits)."""
    for outcome, (short, every) in zip(outcomes, waits, strict=True):
        assert outcome.measurement is not None
        outcome.measurement.server = ServerSide(
            1000.0, 800.0, 1.0, 0.5, float(every), 0.2,
            ((0.1, float(short)), (0.5, float(every)), (math.inf, float(every))),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("waits", "state"), [([(100, 100), (98, 100)], "pass"), ([(100, 100), (40, 100)], "fail")]
)
def test_a_queue_clause_is_judged_over_all_runs(waits: list[tuple[int, int]], state: str) -> None:
    outcomes = runs(SMALL, range(2), "confirm")
    queued(outcomes, waits)
    whole = pool(outcomes, parse_slos(["queue_p95<=100ms"]))
    assert whole is not None
    assert whole.verdict.state == state
    assert whole.verdict.clauses[0].estimate.n == 200


def test_a_run_without_the_servers_figures_leaves_the_queue_unknown() -> None:
    outcomes = runs(SMALL, range(2), "confirm")
    queued(outcomes[:1], [(100, 100)])
    whole = pool(outcomes, parse_slos(["queue_p95<=100ms"]))
    assert whole is not None
    assert "no queue time" in whole.verdict.clauses[0].reason


def test_the_servers_figures_come_back_from_storage_as_they_were() -> None:
    outcomes = runs(SMALL, range(1), "confirm")
    queued(outcomes, [(90, 100)])
    assert outcomes[0].measurement is not None
    side = outcomes[0].measurement.server
    assert side is not None
    assert ServerSide.from_dict(json.loads(json.dumps(side.as_dict()))) == side
    assert ServerSide.from_dict(None) is None


def test_no_figure_ranks_last_whichever_way_is_better() -> None:
    some = {"ttft_p99": Estimate(0.4, 0.3, 0.5, 9, "s", "")}
    none = {"ttft_p99": Estimate(math.inf, 0.3, math.inf, 9, "s", "")}
    for direction in ("minimize", "maximize"):
        objective = Objective("ttft_p99", direction)
        assert objective.rank(some) < objective.rank(none) == objective.rank({})


def test_a_rate_clause_is_judged_between_runs() -> None:
    slos = parse_slos(["output_tps>100"])
    outcomes = runs(DEFAULTS, range(3), "confirm", speed=lambda c: 20.0)  # 160 tok/s
    whole = pool(outcomes, slos)
    assert whole is not None
    assert whole.verdict.state == "pass"
    missed = pool(outcomes, parse_slos(["output_tps>300"]))
    assert missed is not None
    assert missed.verdict.state == "fail"
