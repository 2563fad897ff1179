"""Arrivals over time: ramps, steps, all at once, and the same randomness at every rate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tuner.errors import UserError
from tuner.workload import parse_workload
from tuner.workload.arrivals import Arrivals


def arrivals(text: str) -> Arrivals:
    return parse_workload(f"prompt=1,output=1,{text}").arrivals


def times(text: str, send_s: float, seed: int = 0) -> list[float]:
    drawn = arrivals(text).times(seed, send_s)
    return list(itertools.takewhile(lambda at_s: at_s < send_s, drawn))


@pytest.mark.parametrize("shape", ["", ",burstiness=0.3", ",arrivals=constant"])
def test_another_rate_only_stretches_time(shape: str) -> None:
    slow, fast = times(f"rate=2{shape}", 400), times(f"rate=8{shape}", 100)
    assert len(slow) == len(fast) > 500
    assert np.allclose(np.array(slow) / 4, fast)


@pytest.mark.parametrize(
    ("text", "unit", "told"),
    [
        ("concurrency=1", "clients", "1 client"),
        ("concurrency=6", "clients", "6 clients"),
        ("rate=2.5", "req/s", "2.5 req/s"),
        ("rate=1,arrivals=constant", "req/s", "1 req/s"),
        ("rate=inf,requests=7", "requests", "7 requests"),
    ],
)
def test_a_level_is_told_in_its_unit(text: str, unit: str, told: str) -> None:
    made = arrivals(text)
    assert (made.unit, made.level_text(made.level)) == (unit, told)


def test_longer_sending_only_adds_arrivals() -> None:
    short, long = times("rate=3", 50), times("rate=3", 500)
    assert long[: len(short)] == short


def test_a_rate_below_one_a_second() -> None:
    assert times("rate=0.01,arrivals=constant", 350) == pytest.approx([100, 200, 300])


def test_steps_of_a_rate() -> None:
    drawn = np.array(times("rate=2@100s/0@50s/20@100s/5", 400, seed=1))
    assert np.all(np.diff(drawn) >= 0)
    per_span, _ = np.histogram(drawn, [0, 100, 150, 250, 400])
    assert per_span[1] == 0
    assert per_span[[0, 2, 3]] == pytest.approx([200, 2000, 750], rel=0.15)


def test_a_profile_has_no_more_steps_than_an_arrival_can_look_for() -> None:
    profile = arrivals("rate=" + "/".join(["1@1s"] * 1000)).profile
    assert profile is not None
    assert profile.length_s == 1000
    with pytest.raises(UserError, match="1001 steps; at most 1000, or a trace=FILE") as caught:
        arrivals("rate=" + "/".join(["1@1s"] * 1001))
    assert len(str(caught.value)) < 200


def test_a_constant_step_is_exact() -> None:
    drawn = times("rate=1@3s/2@2s/4,arrivals=constant", 6)
    assert drawn == pytest.approx([1, 2, 3, 3.5, 4, 4.5, 5, 5.25, 5.5, 5.75])


def test_a_ramp_takes_the_whole_time_of_sending() -> None:
    drawn = np.array(times("rate=1..9,arrivals=constant", 100))
    assert len(drawn) == pytest.approx(500, abs=1)
    halves, _ = np.histogram(drawn, [0, 50, 100])
    assert halves == pytest.approx([150, 350], abs=2)
    assert len(times("rate=9..1,arrivals=constant", 100)) == pytest.approx(500, abs=1)


def test_a_rate_that_ends_in_nothing_ends() -> None:
    assert times("rate=1@3s/0,arrivals=constant", 100) == pytest.approx([1, 2, 3])


def test_all_at_once() -> None:
    workload = parse_workload("prompt=1,output=1,rate=inf,requests=7")
    assert list(workload.arrivals.times(0, 60)) == [0.0] * 7
    assert workload.requests == 7
    assert not workload.arrivals.closed
    more = workload.at(9)
    assert more.requests == 9
    assert parse_workload(str(more)) == more


def test_clients_over_time() -> None:
    steps = arrivals("concurrency=4@30s/16@60s/2")
    assert [steps.clients_at(t, 120) for t in (0, 29.9, 30, 89, 90, 500)] == [4, 4, 16, 16, 2, 2]
    assert steps.level == 16
    ramp = arrivals("concurrency=1..4")
    assert [ramp.clients_at(t, 40) for t in (0, 9, 11, 21, 31, 39.9, 40, 60)] == [
        1, 1, 2, 3, 4, 4, 4, 4,
    ]  # fmt: skip
    down = arrivals("concurrency=3..1@30s")
    assert [down.clients_at(t, 90) for t in (0, 11, 21, 80)] == [3, 2, 1, 1]
    assert arrivals("concurrency=5").clients_at(3, 9) == 5


@pytest.mark.parametrize(
    ("text", "level", "becomes"),
    [
        ("rate=2", 5, "rate=5"),
        ("concurrency=2", 5, "concurrency=5"),
        ("rate=1..4", 8, "rate=2..8"),
        ("concurrency=2@30s/4", 8, "concurrency=4@30s/8"),
    ],
)
def test_at_another_level(text: str, level: float, becomes: str) -> None:
    workload = parse_workload(f"prompt=1,output=1,{text}").at(level)
    assert workload == parse_workload(f"prompt=1,output=1,{becomes}")
    assert workload.arrivals.level == level


def test_where_every_request_is_given_the_last_has_a_time() -> None:
    recorded = np.array([0.0, 3.0, 24.0])
    assert Arrivals("trace", 1.0, speed=2.0, recorded_s=recorded).last_s == 12.0
    assert arrivals("rate=inf,requests=7").last_s == 0.0
    assert arrivals("rate=2").last_s is None
    assert arrivals("concurrency=2").last_s is None
