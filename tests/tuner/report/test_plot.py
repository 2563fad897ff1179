"""Bars of a terminal: in proportion, on one scale, and honest about what is missing."""

from __future__ import annotations

import math

from tuner.report.plot import WIDTH, Bar, plot_lines
from tuner.stats import Estimate


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, low, high, 30, "tok/s", "m")


def test_bars_are_in_proportion() -> None:
    lines = plot_lines("x", [
        Bar("8", estimate(50, 50, 50)), Bar("16", estimate(100, 100, 100)), Bar("32", None, "boom"),
    ])  # fmt: skip
    assert lines[0] == "x"
    assert [line.count("█") for line in lines[1:]] == [WIDTH // 2, WIDTH, 0]
    assert lines[1].startswith("   8 █")
    assert lines[1].endswith(" 50 tok/s")
    assert lines[3].endswith("boom")


def test_intervals_and_bounds() -> None:
    lines = plot_lines("x", [Bar("a", estimate(50, 40, 75)), Bar("b", estimate(100, 90, 100))], 60)
    assert lines[1].count("─") == WIDTH // 4 - 1  # one place is the bound's
    assert all(line[4:].index("┊") == int(0.6 * WIDTH) for line in lines[1:])


def test_a_bound_far_away_does_not_flatten_the_bars() -> None:
    (_, line) = plot_lines("x", [Bar("a", estimate(1, 1, 1))], 1000)
    assert line.count("█") == WIDTH
    assert "┊" not in line


def test_a_bound_over_bars_that_are_all_zero() -> None:
    (_, line) = plot_lines("error_rate", [Bar("a", estimate(0, 0, 0.2))], 0.01)
    assert line.count("█") == 0
    assert line.endswith("┊ 0 tok/s")


def test_what_is_not_finite() -> None:
    lines = plot_lines(
        "x", [Bar("a", estimate(math.inf, 5, math.inf)), Bar("b", estimate(1, 0.5, math.inf))]
    )
    assert lines[1].endswith(" ∞")
    assert plot_lines("x", [Bar("a", None)]) == []
    assert plot_lines("x", [Bar("a", estimate(0, 0, 0))])[1].count("█") == 0
