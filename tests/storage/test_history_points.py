"""Points thinned out and joined say what every sample would have said."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.history_points import Layout, Point, fold, unwound

Samples = st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=2, max_size=40)


@given(Samples, st.integers(2, 7))
def test_growth_over_resets_is_that_of_every_sample(
    steps: list[tuple[int, bool]], every: int
) -> None:
    """However samples are thinned out, the growth between two kept ones is what it was."""
    layout = Layout(("vllm:c_total",))
    raw: list[float] = []
    value = 0.0
    for step, reset in steps:
        value = float(step) if reset else value + step
        raw.append(value)
    lost_at = [0.0] + [a if b < a else 0.0 for a, b in pairwise(raw)]
    points = [
        Point(float(i), layout, np.array([v]), np.zeros(1), np.array([lost]))
        for i, (v, lost) in enumerate(zip(raw, lost_at, strict=True))
    ]
    groups = [fold(points[i : i + every]) for i in range(0, len(points), every)]
    values = unwound(np.array([p.values[0] for p in groups]), np.array([p.lost[0] for p in groups]))
    seen = [sum(_grown(raw[: int(p.at_s) + 1])) for p in groups]
    assert values - values[0] == pytest.approx(np.array(seen) - seen[0])


def _grown(raw: list[float]) -> list[float]:
    """Growth from sample to sample by Prometheus' rule: a fall is a reset from 0."""
    return [b if b < a else b - a for a, b in pairwise(raw)]


def test_points_with_other_series_fold_by_name() -> None:
    one = Point(1.0, Layout(("vllm:a", "vllm:b_total")), np.array([1.0, 5.0]),
                np.array([9.0, 0.0]), np.array([0.0, 3.0]))  # fmt: skip
    two = Point(2.0, Layout(("vllm:b_total", "vllm:c", "vllm:a")), np.array([6.0, 7.0, 2.0]),
                np.array([0.0, 7.0, 4.0]), np.array([1.0, 0.0, 0.0]))  # fmt: skip
    both = fold([one, two])
    assert both.values.tolist() == [6.0, 7.0, 2.0]
    assert both.peaks.tolist() == [0.0, 7.0, 9.0]
    assert both.lost.tolist() == [4.0, 0.0, 0.0]
