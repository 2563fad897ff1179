"""Figures as people read them: no exponents, columns that never run into each other."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.report.words import FIGURE_HEAD, figure_line
from tuner.stats import Estimate
from tuner.units import count_text, show

UNITS = ("s", "share", "tok/s", "req/s", "$", "")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (265_000.0, "s", "265000 s"),
        (1e-9, "s", "< 0.0001 ms"),
        (7.19e-7, "share", "< 0.001 %"),
        (0.9994, "share", "99.9 %"),
        (0.9995, "share", "99.95 %"),
        (0.99975, "share", "99.975 %"),
        (0.9999, "share", "99.99 %"),
        (0.99998, "share", "99.998 %"),
        (1 - 1e-9, "share", "> 99.999 %"),
        (1.0, "share", "100 %"),
        (1290.0, "tok/s", "1290 tok/s"),
        (5e-6, "req/s", "< 0.0001 req/s"),
        (0.0123, "s", "12.3 ms"),
        (0.0, "s", "0 ms"),
        (1234.5, "$", "$ 1234"),
        (math.inf, "s", "∞"),
        (math.nan, "s", "no data"),
    ],
)
def test_a_figure_has_no_exponent(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


@given(st.floats(1e-12, 1e12), st.sampled_from(UNITS))
def test_no_figure_has_one(value: float, unit: str) -> None:
    assert "e+" not in show(value, unit)
    assert "e-" not in show(value, unit)


@given(st.floats(0, 1, exclude_max=True))
def test_a_share_below_all_is_never_told_as_all(share: float) -> None:
    assert show(share, "share") != "100 %"


def test_columns_are_apart_however_wide_a_figure_is() -> None:
    line = figure_line("rps", Estimate(0.32, 0.0958, 0.544, 12, "req/s", "batch means"))
    assert "0.32 req/s  " in line
    assert line.index("batch means") == FIGURE_HEAD.index("method")
    wide = Estimate(1e-7, 1e-8, 123_456.0, 1_234_567, "req/s", "m")
    assert "< 0.0001 req/s  < 0.0001 req/s … 123456 req/s  1234567" in figure_line("rps", wide)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 queries in 0 files"), (1, "1 query in 1 file"), (2, "2 queries in 2 files")],
)
def test_one_is_no_plural(count: int, text: str) -> None:
    assert f"{count_text(count, 'query', 'queries')} in {count_text(count, 'file')}" == text
