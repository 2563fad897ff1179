"""The load is sized to the machine: fast, slow and hopeless ones, by prompts, clients and rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.tuner.search.synthetic import FakeTarget, Surface
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.measure import Measurement
from tuner.search.calibrate import (
    BAND,
    DEFAULT_WORKLOAD,
    LIMIT_S,
    Calibration,
    Dial,
    calibrate,
    load_dial,
    prompt_dial,
)
from tuner.slo import SloSet, parse_slos
from tuner.workload import Workload, parse_workload

SLOS = parse_slos(["ttft_p95<500ms"])


def sized(
    dial: Dial, ttft: Callable[[Workload], float], slos: SloSet = SLOS, took_s: float = 1.0
) -> Calibration:
    """Calibrates against a machine whose median TTFT follows from the workload."""
    surface = Surface(FakeTarget())

    def probe(workload: Workload, window_s: float, warmup_s: float, seed: int) -> Measurement:
        surface.ttft = lambda config: ttft(workload)
        surface.clock_s += took_s
        return surface(
            Endpoint("http://fake"), workload, duration_s=window_s, warmup_s=warmup_s, seed=seed,
            slos=slos,
        )  # fmt: skip

    return calibrate(probe, dial, slos, clock=surface.clock)


@pytest.mark.parametrize("tokens_per_s", [600, 1_500, 3_400, 9_000])
def test_prompts_are_sized_so_that_the_slo_just_fails(tokens_per_s: float) -> None:
    """Eight prompts share a convoy: its TTFT is all their tokens over the prefill speed."""
    workload = parse_workload(DEFAULT_WORKLOAD)
    found = sized(prompt_dial(workload), lambda w: 0.05 + 8 * w.prompt.mean / tokens_per_s)
    ratios = [ratio for _, ratio in found.levels]
    assert math.exp(BAND[0]) <= ratios[-1] <= math.exp(BAND[1])
    assert found.workload.prompt.mean == found.levels[-1][0]
    assert found.workload.arrivals == workload.arrivals
    assert found.note == ""


@pytest.mark.parametrize(
    ("text", "per_level_s"),
    [("prompt=256,output=16,concurrency=64", 0.03), ("prompt=256,output=16,concurrency=2", 0.03),
     ("prompt=256,output=16,rate=1", 0.1), ("prompt=256,output=16,rate=40", 0.1)],
)  # fmt: skip
def test_a_given_workload_keeps_its_shape(text: str, per_level_s: float) -> None:
    workload = parse_workload(text)
    found = sized(load_dial(workload), lambda w: 0.02 + per_level_s * w.arrivals.level)
    assert 1.1 <= found.levels[-1][1] <= 1.8
    assert found.workload.prompt == workload.prompt
    assert found.workload.arrivals.kind == workload.arrivals.kind


def test_the_limit_of_a_minute_is_kept() -> None:
    """A latency that jumps has no level inside the band; bisection must still end."""
    rng = np.random.default_rng(0)
    found = sized(
        load_dial(parse_workload("prompt=8,output=8,rate=1")),
        lambda w: float(rng.choice([0.01, 9.0])),
        took_s=7.0,
    )
    assert found.spent_s <= LIMIT_S


def test_a_machine_that_is_too_fast_or_too_slow_is_told() -> None:
    workload = parse_workload(DEFAULT_WORKLOAD)
    assert "do not bind" in sized(prompt_dial(workload), lambda w: 0.001).note
    assert "missed even at" in sized(prompt_dial(workload), lambda w: 30.0).note


def test_an_slo_that_load_cannot_break_is_refused() -> None:
    with pytest.raises(UserError, match="--calibrate needs an SLO"):
        sized(load_dial(parse_workload(None)), lambda w: 0.1, parse_slos(["output_tps>10"]))


def test_a_server_that_fails_is_told() -> None:
    surface = Surface(FakeTarget(), dead=lambda config: True)

    def probe(workload: Workload, window_s: float, warmup_s: float, seed: int) -> Measurement:
        return surface(
            Endpoint(""), workload, duration_s=window_s, warmup_s=warmup_s, seed=seed, slos=SLOS
        )

    with pytest.raises(UserError, match="could not be sized: HTTP 500: boom"):
        calibrate(probe, load_dial(parse_workload(None)), SLOS)
