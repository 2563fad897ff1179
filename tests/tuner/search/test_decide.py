"""What may be claimed: pooled figures, paired gains, and the answers a study can give."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.rows import Stage
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, rate, search_on, ttft_s
from tuner.search.budget import parse_budget
from tuner.search.decide import Config, Decision, decide
from tuner.search.objective import Objective
from tuner.search.pool import pool
from tuner.search.proposals import result_value
from tuner.slo import parse_slos
from tuner.trial import Outcome, run_trial

SLOS = parse_slos(["ttft_p95<500ms"])
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
    """Baseline against SMALL, three rounds."""
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=ttft, speed=speed, noise=noise)
    for seed in range(100, 103):
        for config in (DEFAULTS, SMALL):
            one = range(seed, seed + 1)
            outcomes += runs(config, one, "confirm", ttft=ttft, speed=speed, noise=noise)
    return decide(outcomes, DEFAULTS, SLOS, Objective())


def small(yes: float, no: float) -> Callable[[Config], float]:
    return lambda config: yes if config == SMALL else no


def test_meeting_the_slo_is_the_gain_when_the_baseline_misses_it() -> None:
    found = answer(small(0.2, 0.7), small(18, 20))
    assert (found.answer, found.best_config, found.met) == ("improved", SMALL, True)
    assert found.gain is not None
    assert found.gain.outcome == "worse"  # and it is said so: slower, but within the SLO
    assert found.gain.n == 3


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


def test_both_missing_is_none_feasible() -> None:
    found = answer(small(0.9, 0.9), small(40, 20))
    assert found.answer == "none_feasible"
    assert not found.met


def test_a_bad_day_at_the_start_does_not_speak_against_the_baseline() -> None:
    """The machine was slow while the baseline was first measured, and steady ever since."""
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=small(0.2, 0.9))
    for seed in range(100, 103):
        for config in (DEFAULTS, SMALL):
            one = range(seed, seed + 1)
            outcomes += runs(config, one, "confirm", ttft=small(0.2, 0.3), speed=small(20, 20))
    found = decide(outcomes, DEFAULTS, SLOS, Objective())
    assert found.baseline.verdict.state == "pass"
    assert found.answer == "keep_baseline"


def test_the_searchs_own_figures_do_not_speak_for_a_candidate() -> None:
    outcomes = runs(DEFAULTS, range(2), "baseline", ttft=small(0.2, 0.7))
    outcomes += runs(SMALL, range(5, 8), "search", ttft=small(0.2, 0.7))
    assert decide(outcomes, DEFAULTS, SLOS, Objective()).best_config is None


def test_pooling_adds_samples_and_averages_rates() -> None:
    outcomes = runs(SMALL, range(3), "confirm")
    whole = pool(outcomes, SLOS)
    assert whole is not None
    sent = [o.measurement.counts["sent"] for o in outcomes if o.measurement]
    values = [result_value(o, Objective()) or 0.0 for o in outcomes]
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
    assert result_value(failed, Objective()) is None
    assert failed.margins(SLOS)[-1] > 0


def test_a_rate_clause_is_judged_between_runs() -> None:
    slos = parse_slos(["output_tps>100"])
    outcomes = runs(DEFAULTS, range(3), "confirm", speed=lambda c: 20.0)  # 160 tok/s
    whole = pool(outcomes, slos)
    assert whole is not None
    assert whole.verdict.state == "pass"
    missed = pool(outcomes, parse_slos(["output_tps>300"]))
    assert missed is not None
    assert missed.verdict.state == "fail"
