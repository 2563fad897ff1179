"""The sampler that is taken where none is named: a Gaussian process chooses, and finds."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.samplers import GPSampler

from tests.tuner.search.synthetic import FakeTarget, Surface, search_on
from tuner.search.budget import parse_budget
from tuner.search.optimize import optimize


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("seed", range(2))
def test_a_gaussian_process_finds_what_meets_the_slo(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = GPSampler.sample_relative
    by_process: list[dict[str, Any]] = []

    def spied(*words: Any) -> dict[str, Any]:
        by_process.append(drawn(*words))
        return by_process[-1]

    monkeypatch.setattr(GPSampler, "sample_relative", spied)
    search = search_on(
        Surface(FakeTarget()), budget=parse_budget("22 trials"), seed=seed, sampler="auto"
    )
    decision = optimize(search)
    assert any(by_process)
    assert decision.answer == "improved"
    assert decision.met
    assert float(decision.chosen_config["chunk_size"]) < 1200
