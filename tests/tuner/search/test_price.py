"""What an SLO costs: stored measurements judged again at other bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuner.report.stored_studies import DEFAULTS, broken, by_hand, capacities, measured
from tests.tuner.runs import good
from tests.tuner.search.synthetic import goal_of
from tuner.search.objective import CAPACITY, Objective
from tuner.search.price import FACTORS, Ladder, Rung, ladders
from tuner.search.trial import Outcome
from tuner.search.trials import trials_of

SLO = "ttft_p95<500ms"


def ladder(outcomes: list[Outcome], slo: str = SLO, *objectives: Objective) -> Ladder:
    goal = goal_of(slo, *objectives)
    return ladders(goal, trials_of(outcomes))[0]


def at(found: Ladder, factor: float) -> Rung:
    return next(rung for rung in found.rungs if rung.factor == factor)


def test_looser_bounds_buy_and_tighter_ones_cost() -> None:
    found = ladder(by_hand())
    assert [rung.factor for rung in found.rungs] == list(FACTORS)
    assert [rung.met for rung in found.rungs] == [1, 1, 1, 2, 3, 3]
    assert all(rung.known == 3 for rung in found.rungs)
    now, looser = at(found, 1.0), at(found, 1.5)
    assert now.config == DEFAULTS | {"chunk_size": 256}
    assert looser.config == DEFAULTS | {"chunk_size": 1024}
    assert now.estimate is not None
    assert looser.estimate is not None
    assert now.estimate.value == pytest.approx(70 * 4 / 10, rel=0.02)
    assert looser.estimate.value == pytest.approx(80 * 4 / 10, rel=0.07)
    assert looser.estimate.low < looser.estimate.value < looser.estimate.high


def test_a_rung_says_whether_it_was_confirmed() -> None:
    found = ladder(by_hand())
    assert at(found, 1.0).confirmed
    assert at(found, 1.0).runs == 2
    assert not at(found, 1.5).confirmed
    assert at(found, 1.5).runs == 1


def test_bounds_are_told_with_their_direction() -> None:
    found = ladder(by_hand())
    assert found.bound_text(at(found, 0.5)) == "ttft_p95<250 ms"
    changes = [found.change(rung) for rung in found.rungs]
    assert changes == ["tighter", "tighter", "as it is", "looser", "looser", "looser"]
    lower = ladder(by_hand(), "output_tps>20")
    assert lower.change(at(lower, 0.5)) == "looser"
    assert lower.change(at(lower, 2.0)) == "tighter"
    assert [rung.met for rung in lower.rungs][:1] == [3]
    assert at(lower, 2.0).met == 0


def test_where_nothing_meets_there_is_no_figure() -> None:
    found = ladder([measured(DEFAULTS, ttft_s=5.0)])
    assert all(rung.config is None and rung.estimate is None for rung in found.rungs)
    assert all(rung.met == 0 and rung.known == 1 for rung in found.rungs)


def test_without_a_result_nothing_is_known() -> None:
    found = ladder([broken(DEFAULTS, "out of memory")])
    assert found.rungs == ()
    assert found.why_not == "no configuration has a result"
    assert ladders(goal_of(""), []) == []


def test_a_bound_of_zero_has_no_multiples_and_shares_end_at_one() -> None:
    assert ladder(by_hand(), "error_rate<=0").why_not == "a bound of 0 has no multiples"
    shares = ladder(by_hand(), "attainment>60%,ttft_p95<1s")
    assert [rung.factor for rung in shares.rungs] == [0.5, 0.7, 1.0, 1.5]


def test_an_objective_counted_against_the_slos_is_counted_again() -> None:
    found = ladder(by_hand(), "ttft_p95<900ms", Objective("goodput"))
    tight, loose = at(found, 0.5).estimate, at(found, 2.0).estimate
    assert tight is not None
    assert loose is not None
    assert tight.value == pytest.approx(7, rel=0.05)
    assert loose.value == pytest.approx(8, rel=0.07)


def half_late() -> list[Outcome]:
    """Two configurations of 60 requests: all within 200 ms, and one half at 200 and one at 900."""
    mixed = [good(i, at_s=i / 6, ttft_s=0.2 if i % 2 else 0.9) for i in range(60)]
    return [
        measured(DEFAULTS, ttft_s=0.18),
        measured(DEFAULTS | {"chunk_size": 64}, at_s=20, records=mixed),
    ]


def test_a_clause_counted_against_the_moved_bound_is_counted_again() -> None:
    found = ladder(half_late(), "ttft_p95<1s,attainment>=95%")
    met = {rung.factor: (rung.met, rung.known) for rung in found.rungs}
    assert met[0.5] == (1, 2)
    assert met[1.0] == met[2.0] == (2, 2)
    lax = ladder(half_late(), "ttft_p10<1s,attainment>=95%")  # of the attainment alone
    assert [rung.met for rung in lax.rungs] == [1, 1, 2, 2, 2, 2]
    assert at(lax, 0.5).config == DEFAULTS


def test_a_looser_slo_raises_the_capacity_found() -> None:
    found = ladder(capacities(), SLO, Objective(CAPACITY))
    values = [rung.estimate.value if rung.estimate else 0.0 for rung in found.rungs]
    assert values == sorted(values)
    assert values[0] < values[-1]
    top = at(found, 3.0).estimate
    assert top is not None
    assert top.value == pytest.approx(16)


def test_a_capacity_with_a_guess_in_it_is_no_rungs_best() -> None:
    """The second trial missed the SLOs at its first level: the sampler is told a guess, with
    which the configuration's mean would be the highest; its figure is no data."""
    config = DEFAULTS | {"chunk_size": 512}
    dominated = measured(
        config, seed=9, at_s=900, ttft_s=0.53, load="prompt=64,output=8,rate=64", count=640
    )
    goal = goal_of(SLO, Objective(CAPACITY))
    outcomes = [*capacities(), dominated]
    trials = trials_of(outcomes)
    guess = goal.read(trials[-1], trials).values[0]
    assert guess is not None
    assert guess > 50
    rung = at(ladder(outcomes, SLO, Objective(CAPACITY)), 1.0)
    assert rung.config != config
    assert rung.estimate is not None
    assert rung.estimate.measured
    assert rung == replace(at(ladder(capacities(), SLO, Objective(CAPACITY)), 1.0), met=rung.met)
