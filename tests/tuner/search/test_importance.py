"""Knob importances: the one that matters is found, and what cannot be told is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.search.importance import FEWEST, Point, importances


def points(n: int, noise: float = 0.01, seed: int = 1) -> list[Point]:
    """b alone matters: less is better near 0.3."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        at = dict(zip("abc", map(float, rng.random(3)), strict=True))
        found.append((at, abs(at["b"] - 0.3) + float(rng.normal(0, noise))))
    return found


def test_the_knob_that_matters_comes_first_with_an_interval() -> None:
    found = importances(points(60), ["a", "b", "c"])
    first = found.shares[0]
    assert first.knob == "b"
    assert first.low <= first.value <= first.high
    assert first.low > 0.5
    assert found.sure
    assert (found.n, found.better) == (60, 15)


def test_of_noise_it_says_that_it_cannot_tell() -> None:
    rng = np.random.default_rng(3)
    noise = [(at, float(rng.normal())) for at, _ in points(24)]
    found = importances(noise, ["a", "b", "c"])
    assert not found.sure
    assert found.shares[0].low < 1 / 3 < found.shares[0].high


@pytest.mark.parametrize("n", [0, 1, FEWEST - 1])
def test_too_few_measurements_give_no_share(n: int) -> None:
    found = importances(points(n), ["a", "b"])
    assert found.shares == ()
    assert f"{n} measurements" in found.why_not
    assert not found.sure


def test_a_figure_that_never_changes_depends_on_nothing() -> None:
    found = importances([(at, 1.0) for at, _ in points(20)], ["a", "b"])
    assert found.shares == ()
    assert "the same in all" in found.why_not


def test_one_knob_is_all_of_it_and_none_is_told() -> None:
    assert importances(points(20), ["b"]).shares[0].value == 1
    assert importances(points(20), []).why_not == "no knob was varied"


def test_the_same_measurements_give_the_same_shares() -> None:
    assert importances(points(20), ["a", "b"]) == importances(points(20), ["a", "b"])


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]), st.integers(-3, 3)),
        min_size=FEWEST, max_size=16,
    )
)  # fmt: skip
def test_shares_add_up_whatever_was_measured(rows: list[tuple[float, float, int]]) -> None:
    found = importances([({"a": a, "b": b}, float(v)) for a, b, v in rows], ["a", "b"])
    if found.shares:
        assert sum(share.value for share in found.shares) == pytest.approx(1)
        assert all(0 <= s.low <= s.value <= s.high <= 1 for s in found.shares)
        assert 0 <= found.first_again <= 1
