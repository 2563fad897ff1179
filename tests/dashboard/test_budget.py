"""The overview's error budgets: every figure with unit, window and count, every absence by name."""

from __future__ import annotations

import re

import pytest

from dashboard.budget_watch import BEAT_S, FIRST_BEAT_S, BudgetWatch
from storage.sources import RecordedSource
from storage.sources.base import MetricSource, Outcome
from tests.dashboard.fake_source import FakeSource
from tests.dashboard.pages import Show, overview
from tests.tuner.budget.traffic import DAYS_S, START_S, PerMinute, recorded


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's end is now."""
    monkeypatch.setattr("time.time", lambda: START_S + DAYS_S)


def panel(show: Show, source: MetricSource) -> str:
    text = show(overview, source)
    return text[text.index("Error budgets") :].partition(" Last ")[0]


@pytest.mark.usefixtures("then")
def test_a_budget_that_burns(show: Show) -> None:
    text = panel(show, recorded(PerMinute(good=80, late=10, aborted=4, refused=6)))
    for words in (
        "burn 1×: used up in exactly 30 d", "ttft_p95<500ms 5 % may be bad",
        "counted at the bucket boundary 0.5 s", "aborted, failed or refused requests are bad too",
        "80.0 % n=434,000 requests 3.01 d watched of 30 d",
        "-300 % overspent 86,800 bad of 21,700 allowed",
        "14.4× over 1 h and 5 min", "3× over 1 d and 2 h",
        "no alert 4× · 4× n=6,000 · 500", "ticket 4× · 4×",
        "Without an error budget: output_tps>100: a low rate may be little load",
    ):  # fmt: skip
        assert words in text, words


@pytest.mark.usefixtures("then")
def test_a_share_has_its_interval(show: Show) -> None:
    text = panel(show, recorded(PerMinute(good=1, late=1), span_s=7200.0))
    assert re.search(
        r"50\.0 % n=24\d requests 2 h watched of 30 d 95 % interval 43\.\d % to 56", text
    )
    assert "overspent" in text
    assert "allowed in 2 h, not in 30 d" in text


@pytest.mark.usefixtures("then")
def test_minutes_of_a_month_are_not_a_burnt_month(show: Show) -> None:
    text = panel(show, recorded(PerMinute(late=100), span_s=1200.0))
    assert "too short to tell 2,000 bad of 100 allowed in 20 min, not in 30 d" in text
    assert "overspent" not in text


@pytest.mark.usefixtures("then")
def test_nothing_bad_is_zero(show: Show) -> None:
    text = panel(show, recorded(PerMinute(good=100)))
    assert "100.0 % n=434,000 requests" in text
    assert "100 % 0 bad of 21,700 allowed" in text
    assert "no alert 0× · 0× n=6,000 · 500" in text
    assert "no traffic" not in text


@pytest.mark.usefixtures("then")
def test_no_traffic_is_not_zero(show: Show) -> None:
    text = panel(show, recorded(PerMinute()))
    assert text.count("no traffic") >= 6
    assert "0×" not in text
    assert "no alert" not in text


@pytest.mark.usefixtures("then")
def test_a_window_that_nobody_watched_says_how_much_of_it_was(show: Show) -> None:
    text = panel(show, recorded(PerMinute(late=100), span_s=1200.0))
    assert "watched 20 min of 1 h" in text
    assert "watched 20 min of 3 d" in text
    assert "20 min watched of 30 d" in text
    assert "page" not in text


@pytest.mark.usefixtures("then")
def test_too_few_events_are_told_with_how_many_it_takes(show: Show) -> None:
    text = panel(show, recorded(PerMinute(late=0.1)))
    assert "too few events 20× · 20× n=6 · 0.5 of at least 20" in text


def test_what_is_not_exported_is_named(show: Show) -> None:
    source = RecordedSource([(0.0, "vllm:num_requests_running 1\n")])
    text = panel(show, source)
    assert "No error budget can be told" in text
    assert "the server exports no histogram of ttft" in text


def test_a_silent_target_has_no_budget(show: Show) -> None:
    text = panel(show, FakeSource(Outcome.UNREACHABLE, reason="connection refused"))
    assert "No error budget can be told connection refused" in text


def test_it_is_read_once_a_beat() -> None:
    """However many tabs ask; sooner again while there is nothing."""
    clock = [0.0]
    source = FakeSource()
    watch = BudgetWatch(source, ("ttft_p95<500ms",), clock=lambda: clock[0])
    first = watch.latest()
    clock[0] = BEAT_S - 1
    assert watch.latest() is first
    clock[0] = BEAT_S
    assert watch.latest() is not first
    silent = BudgetWatch(
        FakeSource(Outcome.UNREACHABLE), ("ttft_p95<500ms",), clock=lambda: clock[0]
    )
    nothing = silent.latest()
    clock[0] += FIRST_BEAT_S
    assert silent.latest() is not nothing
