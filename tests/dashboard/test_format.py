"""Figures read as people write them, and absences never look like a zero."""

import math

import pytest

from dashboard.format import duration, interval, number, provenance, quantity, show
from storage.sources.base import Outcome, Reading


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12.0, "12"),
        (9.254, "9.25"),
        (0.01234, "0.0123"),
        (0.00001234, "1.2e-05"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (1_234_567, "1.23M"),
        (4.13e12, "4.13e+03G"),
        (math.inf, "∞"),
        (math.nan, "undefined"),
    ],
)
def test_three_figures(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.000_25, "s", "250 µs"),
        (0.0123, "s", "12.3 ms"),
        (0.9999, "s", "1 s"),
        (1.5, "s", "1.5 s"),
        (math.inf, "s", "∞"),
        (0.5, "ratio", "50.0 %"),
        (1.0, "ratio", "100 %"),
        (0.99999, "ratio", ">99.9 %"),
        (0.00001, "ratio", "<0.1 %"),
        (0.0, "ratio", "0 %"),
        (3 * 1024**3, "bytes", "3 GiB"),
        (812.2, "tok/s", "812 tok/s"),
        (2.013, "events", "2 events"),
        (0.3, "events", "0.3 events"),
        (None, "tok/s", "–"),
    ],
)
def test_units_scale(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_durations() -> None:
    spans = [0.4, 5, 60, 90, 300, 4000, 7260, 3 * 86400 + 3600 * 4, -1]
    shown = ["0.4 s", "5 s", "1 min", "90 s", "5 min", "67 min", "2 h 01 min", "3 d 4 h", "0 s"]
    assert [duration(span) for span in spans] == shown


def test_interval_needs_both_ends() -> None:
    assert interval(0.2, 0.1, 0.3, "s") == "200 ms (100 … 300)"
    assert interval(1.0, 0.9, 1.1, "s") == "1 s (900 ms … 1.1 s)"
    assert interval(0.17, 0.08, math.inf, "s") == "170 ms (80 … ∞)"
    assert interval(math.inf, 0.08, math.inf, "s") == "∞ (80 ms … ∞)"
    assert interval(0.2, None, 0.3, "s") == "200 ms"


def test_absences_differ_from_zero_and_each_other() -> None:
    zero = show(Reading(Outcome.VALUE, 0.0), "req/s")
    others = [
        show(Reading(outcome), "req/s") for outcome in Outcome if outcome is not Outcome.VALUE
    ]
    assert str(zero) == "0 req/s"
    assert len({shown.text for shown in others} | {zero.text}) == 5
    assert len({shown.kind for shown in others} | {zero.kind}) == 5


def test_cut_off_quantile_keeps_its_sign() -> None:
    reading = Reading(Outcome.VALUE, 0.3, window_s=60.0, samples=1234, bound="≤")
    assert str(show(reading, "s")) == "≤300 ms"


def test_what_a_figure_was_counted_over() -> None:
    """A rate's samples are readings of a counter, not events; a share's are what it is of."""
    rate = Reading(Outcome.VALUE, 9.25, window_s=60.0, samples=60)
    told = "last 1 min · n=555 requests · read 60 times"
    assert provenance(rate, of="request", rate=True) == told
    one = Reading(Outcome.VALUE, 0.0168, window_s=60.0, samples=4)
    assert "n=1 request ·" in provenance(one, of="request", rate=True)
    none = Reading(Outcome.VALUE, 0.0, window_s=60.0, samples=60)
    assert "n=0 requests · read 60 times" in provenance(none, of="request", rate=True)
    assert provenance(none) == "last 1 min · read 60 times"
    share = Reading(Outcome.VALUE, 0.3, window_s=60.0, samples=1234)
    assert provenance(share, of="looked-up token") == "last 1 min · n=1,234 looked-up tokens"
    assert provenance(Reading(Outcome.VALUE, 3.0, samples=1)) == "now"
    assert provenance(Reading(Outcome.NO_DATA, reason="x is not exported")) == "x is not exported"
