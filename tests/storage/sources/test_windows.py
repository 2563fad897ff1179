"""Window arithmetic against figures worked out from Prometheus' published rules."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.sources.windows import increase, quantile

INF = math.inf


@pytest.mark.parametrize(
    ("what", "times_s", "values", "window", "expected"),
    [
        ("edges within 1.1 spacings are reached", [5, 15, 25], [10, 20, 30], (0, 30), 30.0),
        ("a far edge gets half a spacing", [50, 60], [90, 100], (0, 60), 15.0),
        ("never below zero at the start", [9, 19], [1, 11], (0, 20), 12.0),
        ("a reset adds what came after it", [0, 10, 20], [100, 0, 10], (0, 20), 10.0),
        ("a reset to a value counts that value", [0, 10], [100, 30], (0, 10), 30.0),
        ("two resets", [0, 10, 20, 30], [5, 1, 3, 2], (0, 30), 5.0),
        ("no growth", [0, 10, 20], [7, 7, 7], (0, 20), 0.0),
        ("samples outside are not looked at", [0, 10, 20, 30], [0, 50, 60, 99], (10, 20), 10.0),
    ],
)
def test_increase(
    what: str,
    times_s: list[float],
    values: list[float],
    window: tuple[float, float],
    expected: float,
) -> None:
    found = increase(times_s, values, *window)
    assert found is not None, what
    assert found.value == pytest.approx(expected), what


@pytest.mark.parametrize("times_s", [[], [5.0], [5.0, 50.0]])
def test_fewer_than_two_samples_say_nothing(times_s: list[float]) -> None:
    assert increase(times_s, [1.0] * len(times_s), 0.0, 10.0) is None


@pytest.mark.parametrize(("grown", "known"), [(9e99, True), (1e101, False), (INF, False)])
def test_growth_out_of_all_bounds_is_none(grown: float, known: bool) -> None:
    assert (increase([0.0, 10.0], [0.0, grown], 0.0, 10.0) is not None) is known


@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=20),
    st.integers(0, 19),
)
def test_an_increase_is_never_negative(steps: list[float], reset: int) -> None:
    values, total = [], 0.0
    for index, step in enumerate(steps):
        total = step if index == reset else total + step
        values.append(total)
    found = increase([float(i) for i in range(len(values))], values, -0.5, len(values))
    assert found is not None
    assert found.value >= 0


@pytest.mark.parametrize(
    ("what", "q", "counts", "value", "bound"),
    [
        ("interpolated in its bucket", 0.5, {1: 0, 2: 10, INF: 10}, 1.5, ""),
        ("interpolated after the first", 0.75, {1: 5, 2: 10, INF: 10}, 1.5, ""),
        ("cut off at the top finite bucket", 0.95, {1: 1, 2: 2, INF: 10}, 2.0, "≥"),
        ("not told apart below the first", 0.5, {1: 9, 2: 10, INF: 10}, 1.0, "≤"),
        ("a bucket that fell back is levelled", 0.5, {1: 0, 2: 6, 4: 5, INF: 6}, 1.5, ""),
    ],
)
def test_quantile(
    what: str, q: float, counts: dict[float, float], value: float, bound: str
) -> None:
    found = quantile(q, counts)
    assert found is not None, what
    assert found.value == pytest.approx(value), what
    assert found.bound == bound, what


@pytest.mark.parametrize(
    ("q", "bucket"), [(0.1, (-math.inf, 1.0)), (0.5, (1.0, 2.0)), (0.95, (2.0, math.inf))]
)
def test_a_quantile_tells_the_bucket_it_lies_in(q: float, bucket: tuple[float, float]) -> None:
    found = quantile(q, {1.0: 20.0, 2.0: 90.0, math.inf: 100.0})
    assert found is not None
    assert found.bucket == bucket


def test_quantile_without_observations_or_buckets() -> None:
    found = quantile(0.5, {1: 0.0, INF: 0.0})
    assert found is not None
    assert math.isnan(found.value)
    assert quantile(0.5, {}) is None
    assert quantile(0.5, {INF: 3.0}) is None
    assert quantile(0.5, {1.0: 3.0, 2.0: 3.0}) is None
