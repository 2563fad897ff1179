"""The noise of repeated trials, and when a search has nothing left to find."""

from __future__ import annotations

import math

import pytest

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Silent, Surface, search_on
from tuner.search.budget import parse_budget
from tuner.search.noise import FEWEST_EXPLORED, exhausted, noise_of
from tuner.search.optimize import optimize
from tuner.search.session import measure
from tuner.search.trials import explored


def flat(noise: float = 0.02) -> Surface:
    return Surface(FakeTarget(), ttft=lambda c: 0.1, rate=lambda c: 20.0, noise=noise)


def test_two_baselines_are_the_first_estimate() -> None:
    search = search_on(flat(0.05), budget=parse_budget("30 trials"))
    assert noise_of(search.goal, []).degrees == 0
    assert "nothing was measured twice" in noise_of(search.goal, []).text("output_tps")
    for seed in range(2):
        measure(search, DEFAULTS, "baseline", seed)
    found = noise_of(search.goal, search.trials)
    values = [search.goal.read(t, search.trials).values[0] or 0.0 for t in search.trials]
    assert found.degrees == 1
    assert found.sd == pytest.approx(abs(math.log(values[0] / values[1])) / math.sqrt(2))
    assert "varies by ±" in found.text("output_tps")


def test_the_noise_is_told_before_the_search() -> None:
    search = search_on(flat(), budget=parse_budget("12 trials"))
    optimize(search)
    assert isinstance(search.events, Silent)
    assert any("noise: output_tps of one configuration varies" in n for n in search.events.notes)


def test_a_flat_surface_ends_the_search_before_the_budget_and_says_why() -> None:
    search = search_on(flat(), budget=parse_budget("100 trials"))
    decision = optimize(search)
    assert decision.answer == "keep_baseline"
    assert len(search.ledger.outcomes) < 60
    assert isinstance(search.events, Silent)
    assert any("by more than the noise" in note for note in search.events.notes)


def test_while_nothing_meets_the_slos_the_search_goes_on() -> None:
    surface = Surface(FakeTarget(), ttft=lambda c: 2.0, rate=lambda c: 20.0)
    search = search_on(surface, budget=parse_budget("40 trials"))
    optimize(search)
    found = explored(search.trials)
    assert len(found) > FEWEST_EXPLORED + 10
    assert exhausted(search.goal, found, search.trials) == ""


def test_a_late_gain_keeps_it_going() -> None:
    search = search_on(flat(0.001), budget=parse_budget("100 trials"))
    for seed in range(2):
        measure(search, DEFAULTS, "baseline", seed)
    surface = search.lab.measure
    assert isinstance(surface, Surface)
    for number in range(FEWEST_EXPLORED + 4):
        measure(search, DEFAULTS | {"chunk_size": 100 + number}, "search", 10 + number)
    found = explored(search.trials)
    assert exhausted(search.goal, found, search.trials)
    surface.rate = lambda c: 30.0
    measure(search, DEFAULTS | {"chunk_size": 999}, "search", 99)
    assert exhausted(search.goal, explored(search.trials), search.trials) == ""
