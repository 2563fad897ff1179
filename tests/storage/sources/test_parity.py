"""The embedded scraper and a real Prometheus give the same figures of one changing exposition."""

from __future__ import annotations

import time

import pytest

from storage.sources.prometheus import PrometheusSource
from tests.storage.sources.parity import TOLERANCE, WINDOW_S, Pair, same


def test_gauges(pair: Pair) -> None:
    same(
        pair.scraped.gauge("vllm:kv_cache_usage_perc"), pair.asked.gauge("vllm:kv_cache_usage_perc")
    )
    assert pair.asked.gauge("vllm:kv_cache_usage_perc").value == 0.65
    for agg in ("sum", "min"):
        assert (
            pair.scraped.gauge("vllm:kv_cache_usage_perc", agg=agg).value
            == pair.asked.gauge("vllm:kv_cache_usage_perc", agg=agg).value
        )
    awkward = {"model_name": 'a "b" \\c'}
    name = "vllm:num_requests_running"
    same(pair.scraped.gauge(name, awkward), pair.asked.gauge(name, awkward))


def test_a_counter_that_was_reset(pair: Pair) -> None:
    mine = pair.scraped.rate("vllm:tokens_total", 11.0)
    same(mine, pair.asked.rate("vllm:tokens_total", 11.0), tolerance=0.1)
    assert mine.value is not None
    assert mine.value > 0
    same(
        pair.scraped.mean("vllm:restarting_seconds", 11.0),
        pair.asked.mean("vllm:restarting_seconds", 11.0),
    )
    same(
        pair.scraped.quantile("vllm:restarting_seconds", 0.8, 11.0),
        pair.asked.quantile("vllm:restarting_seconds", 0.8, 11.0),
    )


def test_a_steady_counter(steady: Pair) -> None:
    labels = {"model_name": "z"}
    for source in (steady.scraped, steady.asked):
        assert source.rate("vllm:tokens_total", WINDOW_S, labels).value == pytest.approx(
            50, rel=0.04
        )
        assert abs(source.rate("vllm:tokens_total", WINDOW_S, labels).samples - WINDOW_S) <= 1
    same(
        steady.scraped.increase("vllm:tokens_total", WINDOW_S, labels),
        steady.asked.increase("vllm:tokens_total", WINDOW_S, labels),
    )


def test_a_counter_under_its_other_spelling(steady: Pair) -> None:
    same(steady.scraped.rate("vllm:done", WINDOW_S), steady.asked.rate("vllm:done", WINDOW_S))


def test_means_and_quantiles(steady: Pair) -> None:
    name = "vllm:latency_seconds"
    same(steady.scraped.mean(name, WINDOW_S), steady.asked.mean(name, WINDOW_S))
    for q in (0.3, 0.5, 0.75, 0.89):
        mine, theirs = (
            steady.scraped.quantile(name, q, WINDOW_S),
            steady.asked.quantile(name, q, WINDOW_S),
        )
        same(mine, theirs)
        assert mine.samples == pytest.approx(theirs.samples, rel=0.1)


@pytest.mark.parametrize(("name", "bound", "value"), [("slow", "≥", 1.0), ("fast", "≤", 0.1)])
def test_a_quantile_in_an_outermost_bucket(pair: Pair, name: str, bound: str, value: float) -> None:
    for source in (pair.scraped, pair.asked):
        reading = source.quantile(f"vllm:{name}_seconds", 0.5, WINDOW_S)
        assert (reading.value, reading.bound) == (value, bound)


def test_the_quantile_is_prometheus_own(pair: Pair) -> None:
    """Our reading of the buckets against the server's histogram_quantile."""
    assert isinstance(pair.asked, PrometheusSource)
    for q in (0.3, 0.5, 0.75, 0.95):
        reading = pair.asked.quantile("vllm:latency_seconds", q, WINDOW_S)
        ((_, own),) = pair.asked.client.vector(reading.query, reading.at_s)
        assert reading.value == pytest.approx(own)


def test_window_arithmetic_is_prometheus_own(pair: Pair) -> None:
    """Our increase over the very samples that the server holds, resets and edges included."""
    from storage.sources.windows import increase

    assert isinstance(pair.asked, PrometheusSource)
    now_s = round(time.time(), 3)
    for window_s in (2.5, 4.0, 7.3, 11.0, 60.0):
        held = pair.asked.client.matrix('vllm:tokens_total{job="engine"}', window_s, now_s)
        query = f'increase(vllm:tokens_total{{job="engine"}}[{round(window_s * 1000)}ms])'
        own = {labels["engine"]: value for labels, value in pair.asked.client.vector(query, now_s)}
        assert len(own) == 2
        for labels, points in held:
            times_s, values = zip(*points, strict=True)
            mine = increase(times_s, values, now_s - window_s, now_s)
            assert mine is not None
            assert mine.value == pytest.approx(own[labels["engine"]], rel=1e-6)


def test_breakdowns(steady: Pair) -> None:
    for name, by, window_s in (
        ("vllm:done_total", "finished_reason", WINDOW_S),
        ("vllm:kv_cache_usage_perc", "engine", None),
    ):
        mine = steady.scraped.breakdown(name, by, window_s)
        theirs = steady.asked.breakdown(name, by, window_s)
        assert set(mine) == set(theirs)
        assert len(mine) == 2
        for key in mine:
            same(mine[key], theirs[key])


def test_ranges(steady: Pair) -> None:
    end_s = time.time() - 1
    times = {"start_s": end_s - 3, "end_s": end_s, "step_s": 1.0, "window_s": 4.0, "q": 0.75}
    for kind, name in (
        ("gauge", "vllm:num_requests_running"),
        ("peak", "vllm:num_requests_running"),
        ("rate", "vllm:done_total"),
        ("rate", "vllm:done"),
        ("mean", "vllm:latency_seconds"),
        ("quantile", "vllm:latency_seconds"),
    ):
        mine = steady.scraped.range(kind, name, **times)  # type: ignore[arg-type]
        theirs = steady.asked.range(kind, name, **times)  # type: ignore[arg-type]
        assert [t for t, _ in mine] == [t for t, _ in theirs]
        assert len(mine) == 4
        for (_, a), (_, b) in zip(mine, theirs, strict=True):
            assert a == pytest.approx(b, rel=TOLERANCE)
    assert {v for _, v in steady.asked.range("mean", "vllm:idle_seconds", **times)} == {None}
    assert {v for _, v in steady.scraped.range("mean", "vllm:idle_seconds", **times)} == {None}
