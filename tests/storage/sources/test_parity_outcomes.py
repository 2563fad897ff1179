"""The embedded scraper and a real Prometheus tell alike what has no figure and how the target does;
one look at everything says the same."""

from __future__ import annotations

from functools import partial

import pytest

from storage.sources.base import MetricSource, Outcome, Wanted
from storage.sources.prometheus import PrometheusSource
from tests.storage.conftest import wait_until
from tests.storage.sources.parity import NAMES, WINDOW_S, Pair, gathered, same


def test_outcomes(pair: Pair) -> None:
    for source in (pair.scraped, pair.asked):
        assert source.gauge("vllm:absent").outcome is Outcome.NO_DATA
        assert source.rate("vllm:absent_total", WINDOW_S).outcome is Outcome.NO_DATA
        assert source.gauge("vllm:fleeting").outcome is Outcome.STALE
        assert source.gauge("vllm:empty").outcome is Outcome.NO_TRAFFIC
        assert source.mean("vllm:idle_seconds", WINDOW_S).outcome is Outcome.NO_TRAFFIC
        assert source.quantile("vllm:idle_seconds", 0.5, WINDOW_S).outcome is Outcome.NO_TRAFFIC
        assert source.increase("vllm:idle_seconds_count", WINDOW_S).value == 0
        assert source.rate("vllm:tokens_total", 0.1).window_s == pytest.approx(4.0)


def test_names_info_and_status(pair: Pair) -> None:
    mine, theirs = pair.scraped.names(), pair.asked.names()
    assert {n for n in theirs if n.startswith("vllm:")} - {"vllm:fleeting"} == {
        n for n in mine if n.startswith("vllm:")
    }
    assert not any(name.startswith("prometheus_") for name in theirs)
    for source in (pair.scraped, pair.asked):
        assert source.info("vllm:cache_config_info") == {"block_size": "16", "num_gpu_blocks": "40"}
        status = source.status()
        assert status.up
        assert status.age_s is not None
        assert status.age_s < 10
        assert status.process_start_s == 1700000000
        assert status.scrape_interval_s == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("window_s", [3600.0, 30 * 86_400.0])
def test_how_long_a_target_was_watched_is_told_for_long_windows_too(
    pair: Pair, window_s: float
) -> None:
    """Else a rate over an hour would spread a minute's growth over it."""
    mine, theirs = (source.over(window_s).status() for source in (pair.scraped, pair.asked))
    assert mine.watched_s is not None
    assert theirs.watched_s == pytest.approx(mine.watched_s, abs=3.0)
    assert pair.asked.over(60.0) is pair.asked


def test_the_engine_is_told_from_other_targets_without_labels(pair: Pair) -> None:
    assert isinstance(pair.asked, PrometheusSource)
    source = PrometheusSource(pair.asked.client._url, scrape_interval_s=1.0)
    assert source.status().up
    assert not any(name.startswith("prometheus_") for name in source.names())
    source.close()


def test_one_look_costs_three_requests_and_then_none(pair: Pair) -> None:
    assert isinstance(pair.asked, PrometheusSource)
    asked: list[object] = []
    call = pair.asked.client.call

    def counted(ask: object) -> object:
        asked.append(ask)
        return call(ask)  # type: ignore[arg-type]

    pair.asked.client.call = counted  # type: ignore[method-assign]
    try:
        look = gathered(pair)
        assert look.status().up
        for name in ("latency", "slow", "fast", "idle"):
            look.mean(f"vllm:{name}_seconds", WINDOW_S)
            look.quantile(f"vllm:{name}_seconds", 0.9, WINDOW_S)
        look.breakdown("vllm:done_total", "finished_reason", WINDOW_S)
        look.gauge("vllm:absent")
    finally:
        del pair.asked.client.call  # type: ignore[method-assign]
    assert len(asked) <= 3


def test_one_look_answers_as_single_questions_do(steady: Pair) -> None:
    look, asked = gathered(steady), steady.asked
    tokens, latency = "vllm:tokens_total", "vllm:latency_seconds"
    for agg in ("max", "sum", "min"):
        name = "vllm:kv_cache_usage_perc"
        assert look.gauge(name, agg=agg).value == asked.gauge(name, agg=agg).value
    same(look.rate(tokens, 11.0), asked.rate(tokens, 11.0))
    same(look.increase(tokens, WINDOW_S), asked.increase(tokens, WINDOW_S))
    same(look.mean(latency, WINDOW_S), asked.mean(latency, WINDOW_S))
    for q in (0.3, 0.75, 0.89):
        same(look.quantile(latency, q, WINDOW_S), asked.quantile(latency, q, WINDOW_S))
    for by, name in (("finished_reason", "vllm:done_total"), ("engine", tokens)):
        mine = look.breakdown(name, by, WINDOW_S)
        theirs = asked.breakdown(name, by, WINDOW_S)
        assert set(mine) == set(theirs)
        for key in mine:
            same(mine[key], theirs[key])
    assert look.info("vllm:cache_config_info") == asked.info("vllm:cache_config_info")
    mine_s, theirs_s = look.status(), asked.status()
    assert (mine_s.up, mine_s.process_start_s) == (theirs_s.up, theirs_s.process_start_s)
    assert mine_s.watched_s == pytest.approx(theirs_s.watched_s, abs=1.0)
    assert mine_s.scrape_interval_s == theirs_s.scrape_interval_s
    assert look.names() <= asked.names()


def test_one_look_keeps_the_outcomes_apart(pair: Pair) -> None:
    look = pair.asked.at_once(Wanted(frozenset(NAMES), 60.0))
    assert look.gauge("vllm:absent").outcome is Outcome.NO_DATA
    assert look.gauge("vllm:fleeting").outcome is Outcome.STALE
    assert look.gauge("vllm:empty").outcome is Outcome.NO_TRAFFIC
    assert look.mean("vllm:idle_seconds", WINDOW_S).outcome is Outcome.NO_TRAFFIC
    assert look.increase("vllm:idle_seconds_count", WINDOW_S).value == 0
    assert "vllm:fleeting" not in look.names()
    other = PrometheusSource("http://127.0.0.1:9", scrape_interval_s=1.0)
    gone = other.at_once(Wanted(frozenset(NAMES), 60.0))
    assert gone.gauge("vllm:fleeting").outcome is Outcome.UNREACHABLE
    assert not gone.status().up
    assert gone.status().reason


def test_one_look_at_nothing_says_that_there_is_no_such_target(pair: Pair) -> None:
    assert isinstance(pair.asked, PrometheusSource)
    source = PrometheusSource(pair.asked.client._url, labels={"job": "nobody"})
    status = source.at_once(Wanted(frozenset(NAMES), 60.0)).status()
    assert (status.up, status.reason) == (False, "Prometheus scrapes no such target")


def down(source: MetricSource) -> bool:
    return not source.status().up


def test_a_target_that_went_down(pair: Pair) -> None:
    """Last, because it ends the target's answers."""
    pair.target.status = 500
    for source in (pair.scraped, pair.asked):
        wait_until(partial(down, source), "the fault to be seen")
        reading = source.gauge("vllm:kv_cache_usage_perc")
        assert reading.outcome is Outcome.UNREACHABLE
        assert reading.reason
    look = gathered(pair)
    assert not look.status().up
    assert look.gauge("vllm:kv_cache_usage_perc").outcome is Outcome.UNREACHABLE
