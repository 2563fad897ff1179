"""Other figures than tokens per second decide as they say: what is best in them wins."""

from __future__ import annotations

import pytest

from tests.tuner.search.synthetic import OUTPUT_TOKENS, FakeTarget, Surface, search_on
from tuner.search.budget import parse_budget, plan
from tuner.search.decide import Decision
from tuner.search.objective import Objective
from tuner.search.optimize import optimize
from tuner.search.trials import Config

BUDGET = parse_budget("30 trials")
PRICE_PER_S = 3.6 / 3600
"""What search_on's server costs, in $."""


def is_small(config: Config) -> bool:
    """Half of the axis of chunk_size; the baseline is not."""
    return float(config["chunk_size"]) < 512


def decided(surface: Surface, slo: str, objective: Objective) -> Decision:
    search = search_on(
        surface, slo, objective, budget=BUDGET, plan=plan(BUDGET, window_s=10.0, warmup_s=2.0)
    )
    return optimize(search)


def on_time_or_many() -> Surface:
    """A small chunk serves 10 requests per second, all within 500 ms; a large one 12, of which
    every other is late."""
    return Surface(
        FakeTarget(), ttft=lambda config: 0.2 if is_small(config) else 0.5,
        rate=lambda config: 10.0 if is_small(config) else 12.0, noise=0.01,
    )  # fmt: skip


def test_goodput_prefers_the_requests_that_are_on_time() -> None:
    decision = decided(on_time_or_many(), "ttft_p10<500ms", Objective("goodput"))
    assert decision.answer == "improved"
    assert is_small(decision.chosen_config)
    assert decision.gain is not None
    assert decision.gain.ratio == pytest.approx(10 / 6, rel=0.15)


def test_throughput_on_the_same_server_prefers_the_many() -> None:
    decision = decided(on_time_or_many(), "ttft_p10<500ms", Objective("output_tps"))
    assert decision.answer == "keep_baseline"
    assert not is_small(decision.chosen_config)


def test_the_cheapest_tokens_win() -> None:
    surface = Surface(
        FakeTarget(), ttft=lambda config: 0.2,
        rate=lambda config: 20.0 if is_small(config) else 12.0, noise=0.01,
    )  # fmt: skip
    decision = decided(surface, "ttft_p95<500ms", Objective("cost_per_mtok", "minimize"))
    assert decision.answer == "improved"
    assert is_small(decision.chosen_config)
    assert decision.gain is not None
    assert decision.gain.ratio == pytest.approx(12 / 20, rel=0.05)
    assert decision.best is not None
    cost = decision.best.summary["cost_per_mtok"]
    assert cost.value == pytest.approx(1e6 * PRICE_PER_S / (20 * OUTPUT_TOKENS), rel=0.05)
