"""The five outcomes and every question, on recordings that anyone can read."""

from __future__ import annotations

import pytest

from storage.sources import RecordedSource
from storage.sources.base import Outcome
from tests.storage.sources.virtual import START_S, VirtualScrape

HISTOGRAM = """\
h_bucket{{le="0.1"}} {low}
h_bucket{{le="1.0"}} {mid}
h_bucket{{le="+Inf"}} {all}
h_sum {sum}
h_count {all}
"""


def recording(*texts: str, every_s: float = 10.0) -> RecordedSource:
    return RecordedSource([(1000 + i * every_s, text) for i, text in enumerate(texts)])


def histogram(low: int, mid: int, all_: int, total: float) -> str:
    return HISTOGRAM.format(low=low, mid=mid, all=all_, sum=total)


def test_gauge_takes_the_largest_of_duplicate_series() -> None:
    source = recording("".join(f'kv{{engine="{i}"}} {v}\n' for i, v in enumerate([0, 0, 0.65, 0])))
    assert source.gauge("kv").value == 0.65
    assert source.gauge("kv").samples == 4
    assert source.gauge("kv", agg="sum").value == 0.65
    assert source.gauge("kv", {"engine": "0"}).value == 0


def test_rate_and_increase_sum_over_series_and_survive_a_reset() -> None:
    source = recording(
        'c_total{e="0"} 100\nc_total{e="1"} 10\n', 'c_total{e="0"} 40\nc_total{e="1"} 20\n'
    )
    assert source.increase("c_total", 10).value == pytest.approx(50)
    assert source.rate("c_total", 10).value == pytest.approx(5)
    assert source.rate("c_total", 10).samples == 2
    assert source.rate("c_total", 10, {"e": "1"}).value == pytest.approx(1)


@pytest.mark.parametrize(("exported", "asked"), [("c", "c_total"), ("c_total", "c")])
def test_a_counter_is_found_under_its_other_spelling(exported: str, asked: str) -> None:
    assert recording(f"{exported} 1\n", f"{exported} 11\n").increase(asked, 10).value == 10


def test_mean_and_quantile_count_their_observations() -> None:
    source = recording(histogram(0, 0, 0, 0.0), histogram(10, 90, 100, 40.0))
    mean = source.mean("h", 10)
    assert (mean.value, mean.samples) == (pytest.approx(0.4), 100)
    median = source.quantile("h", 0.5, 10)
    assert median.value == pytest.approx(0.55)
    assert (median.samples, median.bound) == (100, "")
    assert source.quantile("h", 0.99, 10).bound == "≥"
    assert source.quantile("h", 0.99, 10).value == 1.0
    assert source.quantile("h", 0.01, 10).bound == "≤"
    assert source.quantile("h", 0.01, 10).value == 0.1


def test_a_mean_over_replicas_is_a_ratio_of_sums() -> None:
    """A replica with one slow request does not weigh as much as one with 99 fast ones."""
    before = 'h_sum{e="0"} 0\nh_count{e="0"} 0\nh_sum{e="1"} 0\nh_count{e="1"} 0\n'
    after = 'h_sum{e="0"} 9.9\nh_count{e="0"} 99\nh_sum{e="1"} 10\nh_count{e="1"} 1\n'
    mean = recording(before, after).mean("h", 10)
    assert mean.value == pytest.approx(0.199)  # the mean of both means would be 5.05
    assert mean.samples == 100


def test_no_traffic_is_not_zero() -> None:
    source = recording(histogram(1, 2, 3, 4.0), histogram(1, 2, 3, 4.0))
    assert source.mean("h", 10).outcome is Outcome.NO_TRAFFIC
    assert source.quantile("h", 0.5, 10).outcome is Outcome.NO_TRAFFIC
    assert source.increase("h_count", 10).value == 0


def test_not_exported_is_no_data_and_names_the_metric() -> None:
    source = recording("a 1\n", "a 2\n")
    for reading in (
        source.gauge("b"),
        source.rate("b", 10),
        source.mean("b", 10),
        source.quantile("b", 0.5, 10),
    ):
        assert reading.outcome is Outcome.NO_DATA
        assert "b" in reading.reason
        assert reading.value is None


def test_one_sample_is_not_yet_a_window() -> None:
    reading = recording("c_total 5\n").rate("c_total", 10)
    assert reading.outcome is Outcome.NO_DATA
    assert "two samples" in reading.reason


def test_a_series_that_went_away_is_stale() -> None:
    source = recording("g 1\na 1\n", "a 1\n")
    assert source.gauge("g").outcome is Outcome.STALE
    assert source.gauge("a").ok
    assert source.names() == {"a"}


def test_a_recording_that_ended_long_ago_is_stale() -> None:
    source = RecordedSource([(1000, "g 1\n"), (1005, "g 2\n")], now_s=1100)
    assert source.gauge("g").outcome is Outcome.STALE
    assert "95 s" in source.gauge("g").reason
    assert source.rate("g", 20).outcome is Outcome.NO_DATA


def test_breakdown_by_a_label() -> None:
    text = 'r{reason="capacity"} 3\nr{reason="deferred"} 0\nf_total{why="stop"} %d\n'
    source = recording(text % 5, text % 25)
    gauges = source.breakdown("r", "reason")
    assert {k: r.value for k, r in gauges.items()} == {"capacity": 3, "deferred": 0}
    grown = source.breakdown("f_total", "why", 10)
    assert {k: r.value for k, r in grown.items()} == {"stop": 20}
    assert source.breakdown("absent", "why") == {}


def test_info_and_status() -> None:
    source = RecordedSource(
        [(1000, 'i_info{block_size="16"} 1\nprocess_start_time_seconds 900\n')], now_s=1003
    )
    assert source.info("i_info") == {"block_size": "16"}
    assert source.info("absent") is None
    status = source.status()
    assert (status.up, status.age_s, status.process_start_s) == (True, 3.0, 900.0)


def test_range_leaves_gaps_where_there_is_nothing() -> None:
    texts = [histogram(0, i, i, i * 0.5) + f"g {i}\n" for i in (0, 10, 10, 30)]
    source = recording(*texts)
    times = {"start_s": 1000, "end_s": 1030, "step_s": 10, "window_s": 10}
    assert source.range("gauge", "g", **times) == [(1000, 0), (1010, 10), (1020, 10), (1030, 30)]
    assert [v for _, v in source.range("rate", "h_count", **times)] == [None, 1.0, 0.0, 2.0]
    assert [v for _, v in source.range("mean", "h", **times)] == [None, 0.5, None, 0.5]
    assert [v for _, v in source.range("quantile", "h", q=0.5, **times)] == [
        None, pytest.approx(0.55), None, pytest.approx(0.55),
    ]  # fmt: skip


def test_source_labels_narrow_every_question() -> None:
    source = RecordedSource(
        [(0, 'g{model_name="a"} 1\ng{model_name="b"} 9\n')], labels={"model_name": "a"}
    )
    assert source.gauge("g").value == 1


def test_a_window_is_cut_to_what_was_watched() -> None:
    """Growth that nobody saw is not 0: the rate of 20 watched seconds is not spread over 60."""
    pages = [(1e9 + at_s, f"vllm:tokens_total {100 * at_s}\n") for at_s in range(0, 21, 5)]
    source = RecordedSource(pages)
    status = source.status()
    assert status.watched_s == 20.0
    assert status.window_s(60.0) == 20.25
    rate = source.rate("vllm:tokens_total", status.window_s(60.0)).value
    assert rate == pytest.approx(100, rel=0.02)
    assert status.window_s(1.0) == 20.0  # never below four scrapes


def test_memory_is_not_asked_about_more_than_it_holds() -> None:
    """A scraper that has run for an hour holds fifteen minutes: a rate over an hour is of those."""
    source = VirtualScrape(None)
    while source.now_s < START_S + 3600:
        source.now_s += 5
        source.scrape(f"vllm:tokens_total {100 * (source.now_s - START_S)}\n")
    status = source.over(3600.0).status()
    assert status.window_s(3600.0) <= 901
    rate = source.rate("vllm:tokens_total", status.window_s(3600.0)).value
    assert rate == pytest.approx(100, rel=0.02)
