"""When a run had settled, and when more was offered than served."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.stats.load import Floats, ar1, queue_waits
from tuner.stats.saturation import Saturation, find_saturation
from tuner.stats.steady import Series, find_steady, settles_at

TIMES = np.linspace(0, 60, 600, endpoint=False)


def share(series: Floats, true: float = 0.0) -> float:
    """How many series are found to settle only after `true` seconds."""
    return float(np.mean([(settles_at(Series(TIMES, x)) or 0.0) > true for x in series]))


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_steady_series_are_rarely_cut(phi: float) -> None:
    series = ar1(np.random.default_rng(1), 200, 600, phi)
    assert share(series) <= 0.1
    assert np.mean([settles_at(Series(TIMES, x)) is None for x in series]) <= 0.03


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_a_slow_start_is_cut(phi: float) -> None:
    noise = ar1(np.random.default_rng(2), 200, 600, phi)
    starts = [settles_at(Series(TIMES, x + 5 * np.exp(-TIMES / 4))) for x in noise]
    assert np.mean([start is None for start in starts]) <= 0.08
    found = np.array([start or 0.0 for start in starts])
    assert np.mean(found > 2.0) >= 0.9
    assert np.median(found) < 20.0  # what is left of it then is e⁻⁵


def test_a_drift_has_no_steady_state() -> None:
    noise = ar1(np.random.default_rng(3), 200, 600, 0.5)
    assert np.mean([settles_at(Series(TIMES, x + TIMES / 6)) is None for x in noise]) >= 0.6


def test_a_stall_in_the_middle_is_no_warm_up() -> None:
    """MSER alone would cut all before its end, and hide it."""
    quiet = ar1(np.random.default_rng(4), 50, 600, 0.0)
    stalled = quiet + 20 * ((TIMES > 15) & (TIMES < 20))
    assert share(stalled) == 0


def test_the_latest_of_all_series_counts_and_never_less_than_asked_for() -> None:
    rng = np.random.default_rng(5)
    flat = Series(TIMES, ar1(rng, 1, 600, 0.0)[0])
    slow = Series(TIMES, ar1(rng, 1, 600, 0.0)[0] + 6 * np.exp(-TIMES / 4))
    found = find_steady({"TTFT": flat, "E2E": slow}, 1.0)
    assert found.reached
    assert found.start_s > 5
    assert found.why.startswith("E2E")
    assert find_steady({"TTFT": flat, "E2E": slow}, 30.0).start_s == 30.0
    late = find_steady({"TTFT": flat, "E2E": slow}, 1.0, most_s=3.0)
    assert (late.reached, late.start_s) == (False, 1.0)
    assert "later than allowed" in late.why


def test_what_has_not_settled_is_said_and_nothing_is_trimmed() -> None:
    rising = Series(TIMES, TIMES + ar1(np.random.default_rng(6), 1, 600, 0.0)[0])
    found = find_steady({"TTFT": rising}, 2.0)
    assert (found.reached, found.start_s) == (False, 2.0)
    assert "TTFT had not settled" in found.why


def test_too_few_requests_tell_nothing() -> None:
    short = Series(TIMES[:99], 1000 * np.exp(-TIMES[:99]))
    assert find_steady({"TTFT": short}, 2.0).reached is None


def saturated(load: float, n: int = 1000, *, skewed: bool = True, seed: int = 7) -> list[bool]:
    """An M/G/1 queue that starts empty, as seen from the window after a tenth of its time."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1, (100, n)), axis=1)
    service = load * (rng.exponential(1, (100, n)) if skewed else np.ones((100, n)))
    ends = arrivals + queue_waits(arrivals, service) + service
    found = []
    for at_s, end_s in zip(arrivals, ends, strict=True):
        last = float(at_s[-1])
        seen = np.where(end_s > last + 10, math.nan, end_s)
        found.append(find_saturation(at_s, seen, (0.1 * last, last)) is not None)
    return found


@pytest.mark.parametrize("skewed", [True, False])
def test_stable_queues_are_not_called_saturated(skewed: bool) -> None:
    assert sum(saturated(0.7, skewed=skewed)) == 0
    assert sum(saturated(0.95, skewed=skewed)) <= 5
    assert sum(saturated(0.95, 200, skewed=skewed)) <= 8


@pytest.mark.parametrize(("load", "n", "least"), [(1.2, 1000, 80), (1.5, 300, 85), (1.2, 3000, 97)])
def test_overload_is_found(load: float, n: int, least: int) -> None:
    assert sum(saturated(load, n)) >= least


@pytest.mark.parametrize("took_s", [3.0, 10.0, 20.0, 40.0])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_long_answers_without_a_queue_are_no_overload(took_s: float, spread: float) -> None:
    """The backlog grows until the first have ended, and may not end inside the window at all."""
    rng = np.random.default_rng(8)
    for _ in range(30):
        at_s = np.sort(rng.uniform(0, 30, 300))
        ends = at_s + took_s * np.exp(spread * rng.normal(size=300))
        assert find_saturation(at_s, np.where(ends > 40, math.nan, ends), (3.0, 30.0)) is None


def test_a_stall_that_is_made_up_for_is_no_overload() -> None:
    at_s = np.linspace(0, 30, 600, endpoint=False)
    ends = np.maximum(at_s + 0.1, np.where((at_s > 10) & (at_s < 13), 13.1, 0.0))
    assert find_saturation(at_s, ends, (0.0, 30.0)) is None


def test_what_is_said_of_it() -> None:
    at_s = np.arange(360) / 12
    ends = (0.5 + np.arange(360)) / 8
    found = find_saturation(at_s, np.where(ends > 30, math.nan, ends), (0.0, 30.0))
    assert isinstance(found, Saturation)
    assert str(found).startswith("offered 12 req/s, completed 8 req/s; the backlog grew by 12")
