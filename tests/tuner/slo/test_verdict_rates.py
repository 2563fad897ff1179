"""How often verdicts on percentiles are false, and how soon they come: simulated runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.tuner.runs import good, run
from tests.tuner.stats.load import Floats, ar1, lock_step
from tuner.slo import judge, parse_slos
from tuner.stats import RunNoise, quantile_estimate
from tuner.stats.estimate import CONFIDENCE

RUNS = 400
LOOSE = 0.022
P95 = 1.645
Draw = Callable[[np.random.Generator, int, int], Floats]
"""(rng, runs, requests) → logs of latencies of standard deviation 0.3 or less."""


def independent(rng: np.random.Generator, runs: int, n: int) -> Floats:
    return 0.3 * rng.normal(size=(runs, n))


def correlated(rng: np.random.Generator, runs: int, n: int) -> Floats:
    return 0.3 * ar1(rng, runs, n, 0.8)


def waves(rng: np.random.Generator, runs: int, n: int) -> Floats:
    return lock_step(rng, runs, n, wave=0.3, own=0.05)


def one_sided(logs: Floats) -> tuple[Floats, Floats]:
    """(lower, upper) ends that decide a p95 clause."""
    found = [quantile_estimate(np.exp(x), 0.95, "s", confidence=2 * CONFIDENCE - 1) for x in logs]
    return np.array([one.low for one in found]), np.array([one.high for one in found])


@pytest.mark.parametrize("n", [130, 320])
@pytest.mark.parametrize(
    ("draw", "sd"),
    [(independent, 0.3), (correlated, 0.3), (waves, math.hypot(0.3, 0.05))],
)  # fmt: skip
def test_a_p95_five_percent_over_the_bound_is_met_no_more_often_than_said(
    draw: Draw, sd: float, n: int
) -> None:
    low, high = one_sided(draw(np.random.default_rng(1), RUNS, n))
    truth = math.exp(sd * P95)
    assert (high < truth / 1.05).mean() <= 0.05 + LOOSE
    assert (low > truth * 1.05).mean() <= 0.05 + LOOSE


def test_half_the_bound_is_decided_by_120_requests_in_lock_step() -> None:
    logs = lock_step(np.random.default_rng(2), RUNS, 120, wave=0.12, own=0.03)
    _, high = one_sided(logs)
    truth = math.exp(math.hypot(0.12, 0.03) * P95)
    assert (high < 2 * truth).mean() >= 0.9
    low, _ = one_sided(logs)
    assert (low > truth / 2).mean() >= 0.9


def test_222_ms_against_500_ms_is_met_in_one_run_and_with_the_noise_of_runs() -> None:
    """As judge says it, from records: 15 s of eight clients in lock-step."""
    slos = parse_slos(["ttft_p95<500ms"])
    logs = lock_step(np.random.default_rng(3), 20, 120)
    for x in logs:
        records = [
            good(i, at_s=(i // 8) * 1.0, ttft_s=0.195 * float(np.exp(one)))
            for i, one in enumerate(x)
        ]
        made = run(records, slos, end_s=15.0)
        assert judge(slos, made).state == "pass"
        assert judge(slos, made, noise={"ttft_p95": RunNoise()}).state == "pass"
        assert judge(slos, made, confidence=0.9875).state == "pass"
        assert judge(parse_slos(["ttft_p95<100ms"]), made).state == "fail"
