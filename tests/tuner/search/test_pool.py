"""Several runs as one: decided by what is known of the noise between runs, not by their number."""

from __future__ import annotations

import math

import numpy as np

from tests.tuner.runs import good, run, running
from tuner.measure import Measurement
from tuner.measure.cautions import GeneratorLoop
from tuner.records import RequestRecord
from tuner.search.pool import noise_of, pool
from tuner.search.trial import Outcome
from tuner.slo import judge, parse_slos
from tuner.stats import RunNoise

SLOS = parse_slos(["ttft_p95<500ms"])


def measured(ttft_s: float, seed: int, count: int = 130) -> Measurement:
    rng = np.random.default_rng(seed)
    records = [
        good(i, at_s=0.1 * i, ttft_s=ttft_s * float(np.exp(0.1 * rng.normal())))
        for i in range(count)
    ]
    return run(records, SLOS, end_s=0.1 * count)


def outcome(made: Measurement, ended_why: str = "") -> Outcome:
    made.ended_why = ended_why
    return Outcome("confirm", {}, made.seed, 0.0, "ok", measurement=made, verdict=judge(SLOS, made))


def state(*ttft_s: float, noise: RunNoise | None = None) -> str:
    known = {"ttft_p95": noise} if noise else None
    outcomes = [outcome(measured(one, seed)) for seed, one in enumerate(ttft_s)]
    found = pool(outcomes, SLOS, noise=known)
    assert found is not None
    return found.verdict.state


def test_two_runs_far_from_the_bound_decide_without_any_other() -> None:
    assert state(0.15, 0.19) == "pass"
    assert state(0.8, 0.97) == "fail"
    assert state(0.35, 0.42) == "inconclusive"


def test_what_other_configurations_showed_of_the_noise_decides_nearer_to_it() -> None:
    assert state(0.35, 0.36, noise=RunNoise(0.02, 12)) == "pass"
    assert state(0.35, 0.36, noise=RunNoise(0.2, 12)) == "inconclusive"
    assert state(0.35, noise=RunNoise(0.02, 12)) == "pass"
    assert state(0.62, 0.63, noise=RunNoise(0.02, 12)) == "fail"


def test_few_requests_never_pass_however_many_runs() -> None:
    short = [outcome(measured(0.1, seed, count=14)) for seed in range(4)]
    found = pool(short, SLOS, noise={"ttft_p95": RunNoise(0.01, 20)})
    assert found is not None
    assert found.verdict.state == "inconclusive"


def test_noise_is_learned_from_whole_runs_of_repeated_configurations() -> None:
    pairs = [[outcome(measured(0.2, 1)), outcome(measured(0.2, 2))],
             [outcome(measured(0.4, 3)), outcome(measured(0.44, 4))]]  # fmt: skip
    assert noise_of(pairs)["ttft_p95"].degrees == 4
    assert noise_of(pairs)["ttft_p95"].sd_log > 0.04
    early = [[outcome(measured(0.2, 1)), outcome(measured(0.9, 2), "seen enough")]]
    assert noise_of(early)["ttft_p95"] == RunNoise()


def overload() -> list[RequestRecord]:
    """12 requests per second at a server that serves 8."""
    return [
        good(i, at_s=i / 12, ttft_s=(i + 1) / 8 - i / 12, gap_s=0.0) if (i + 1) / 8 < 30
        else running(i, i / 12)
        for i in range(360)
    ]  # fmt: skip


def test_a_saturated_run_that_fails_is_not_excused_by_others() -> None:
    saturated = run(overload(), SLOS, end_s=30.0, workload="prompt=8,output=4,rate=12")
    assert saturated.saturation is not None
    assert judge(SLOS, saturated).state == "fail"
    fine = [outcome(measured(0.05, seed, count=3000)) for seed in range(3)]
    found = pool([*fine, outcome(saturated)], SLOS)
    assert found is not None
    assert found.verdict.state == "fail"


def test_a_generator_that_was_the_bottleneck_in_one_run_spoils_all() -> None:
    made = [measured(0.1, seed) for seed in range(2)]
    made[1].loop = GeneratorLoop(0.001, 0.002, 0.97)
    found = pool([outcome(one) for one in made], SLOS)
    assert found is not None
    assert found.verdict.state == "inconclusive"
    assert "bottleneck" in found.verdict.reason
    assert math.isfinite(found.summary["ttft_p95"].high)
