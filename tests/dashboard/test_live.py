"""A look at a source: names resolve over dialects, absences stay apart, no wait piles up."""

import math
from typing import Any

import pytest

from dashboard.judge import latency_slos
from dashboard.live import Latency, Watched, attainment, binding_shares, chart_points, take
from storage.sources import RecordedSource
from storage.sources.base import Outcome, Reading
from tests.dashboard.fake_source import GAUGES, RATES, FakeSource
from tests.tuner.diagnosis.engine_pages import page
from tuner.stats.rates import clopper_pearson


def test_reads_every_figure_with_window_and_samples() -> None:
    snapshot = take(FakeSource(), 60.0)
    assert snapshot.identity.engine == "slotune"
    assert snapshot.identity.models == ("smollm2-135m",)
    assert (snapshot.identity.max_num_seqs, snapshot.identity.kv_tokens) == (16, 65_536)
    assert snapshot.running.value == GAUGES["vllm:num_requests_running"]
    assert snapshot.generation_rate.value == RATES["vllm:generation_tokens_total"]
    assert snapshot.generation_rate.window_s == 60.0
    hits, queries = RATES["vllm:prefix_cache_hits_total"], RATES["vllm:prefix_cache_queries_total"]
    assert snapshot.prefix_hit_rate.value == pytest.approx(hits / queries)
    assert snapshot.latencies["ttft"].mean.samples == 555


def test_sglangs_prefill_is_one_of_its_stages() -> None:
    pages = [page("sglang-0.5.23", moment) for moment in ("begun", "kv-starved")]
    source = RecordedSource([(1.8e9 + 20 * i, text) for i, text in enumerate(pages)])
    latencies = take(source, 60.0).latencies
    prefill, queue = latencies["prefill"], latencies["queue"]
    assert prefill.mean.samples == queue.mean.samples == int(prefill.buckets[-1][1])
    assert 1.0 < (prefill.mean.value or 0.0) < (queue.mean.value or 0.0)
    assert 1.0 < (prefill.quantiles[0.5].value or 0.0) < 2.0


def test_what_a_long_window_asks_is_asked_of_what_reaches_so_far() -> None:
    class Kept(FakeSource):
        def over(self, window_s: float) -> FakeSource:
            return history if window_s > 900 else self

    history, live = FakeSource(scrape_interval_s=60.0), Kept()
    take(live, 3600.0)
    assert history.asked
    assert live.asked == []
    take(live, 60.0)
    assert live.asked


@pytest.mark.parametrize(("span_s", "kind"), [(900.0, "gauge"), (86_400.0, "peak")])
def test_a_long_chart_shows_a_gauges_peaks(span_s: float, kind: str) -> None:
    class Seen(FakeSource):
        def range(self, kind: str, name: str, **options: Any) -> list[tuple[float, float | None]]:
            asked.append((kind, options["window_s"], options["step_s"]))
            return super().range(kind, name, **options)

    asked: list[tuple[str, float, float]] = []
    chart_points(Watched(Seen()), "waiting", span_s=span_s, window_s=15.0)
    [(found, window_s, step_s)] = asked
    assert found == kind
    assert window_s >= step_s  # no sample falls between two points of the chart


def test_missing_metric_is_named() -> None:
    source = FakeSource(without=frozenset({"vllm:num_preemptions_total"}))
    reading = take(source, 60.0).preemptions
    assert reading.outcome is Outcome.NO_DATA
    assert "vllm:num_preemptions_total is not exported" in reading.reason


def test_older_name_is_found() -> None:
    class Old(FakeSource):
        def names(self) -> frozenset[str]:
            return (super().names() - {"vllm:kv_cache_usage_perc"}) | {"vllm:gpu_cache_usage_perc"}

    source = Old()
    take(source, 60.0)
    assert "vllm:gpu_cache_usage_perc" in source.asked
    assert "vllm:kv_cache_usage_perc" not in source.asked


def test_sglangs_names_are_the_registrys() -> None:
    class Sglang(FakeSource):
        def names(self) -> frozenset[str]:
            histogram = "sglang:request_time_per_output_token_seconds"
            return frozenset({f"{histogram}_bucket", "sglang:num_running_reqs"})

    watched = Watched(Sglang())
    assert watched.resolve("tpot") == "sglang:request_time_per_output_token_seconds"
    assert watched.resolve("running") == "sglang:num_running_reqs"
    assert watched.resolve("prefill") is None


@pytest.mark.parametrize(("samples", "word"), [(29, "undecided"), (30, "met")])
def test_a_mean_of_few_requests_is_not_passed(samples: int, word: str) -> None:
    mean = Reading(Outcome.VALUE, 0.1, "ttft", 60.0, samples)
    [slo] = latency_slos(["mean(ttft)<500ms"])
    assert slo.verdict(Latency("ttft", mean, {}, ()))[0] == word


def test_unreachable_source_is_asked_once() -> None:
    source = FakeSource(Outcome.UNREACHABLE, reason="connection refused")
    snapshot = take(source, 60.0)
    assert len(source.asked) == 1
    assert snapshot.latencies["e2e"].mean.outcome is Outcome.UNREACHABLE
    assert snapshot.prefix_hit_rate.outcome is Outcome.UNREACHABLE


def test_no_traffic_is_not_zero() -> None:
    snapshot = take(FakeSource(Outcome.NO_TRAFFIC), 60.0)
    assert snapshot.running.value == 0.0
    assert snapshot.latencies["ttft"].mean.outcome is Outcome.NO_TRAFFIC
    assert snapshot.latencies["ttft"].buckets == ()


def test_no_token_looked_up_is_no_traffic() -> None:
    class Idle(FakeSource):
        def increase(self, name: str, window_s: float, labels: object = None) -> Reading:
            return Reading(Outcome.VALUE, 0.0, name, window_s, 60)

    assert take(Idle(), 60.0).prefix_hit_rate.outcome is Outcome.NO_TRAFFIC


def test_binding_shares_are_of_steps_and_ordered() -> None:
    counts = {"underloaded": 10.0, "kv_pressure": 30.0, "other": 0.0}
    readings = {reason: Reading(Outcome.VALUE, count) for reason, count in counts.items()}
    assert binding_shares(readings) == [("kv_pressure", 0.75), ("underloaded", 0.25)]
    assert binding_shares({"other": Reading(Outcome.VALUE, 0.0)}) == []


@pytest.mark.parametrize(
    ("bound_s", "share"),
    [
        (0.5, (0.9, 0.9)),  # a bucket's own bound: exact
        (0.7, (0.9, 1.0)),  # between two bounds: what the buckets allow
        (0.1, (0.0, 0.4)),
        (5.0, (1.0, 1.0)),
    ],
)
def test_attainment_is_what_buckets_allow(bound_s: float, share: tuple[float, float]) -> None:
    buckets = ((0.25, 40.0), (0.5, 90.0), (1.0, 100.0), (math.inf, 100.0))
    assert attainment(buckets, bound_s) == share


def test_attainment_past_the_top_bucket_keeps_the_overflow_open() -> None:
    assert attainment(((1.0, 80.0), (math.inf, 100.0)), 2.0) == (0.8, 1.0)
    assert attainment((), 1.0) is None
    assert attainment(((1.0, 0.0), (math.inf, 0.0)), 1.0) is None


def test_chart_of_a_missing_metric_is_empty() -> None:
    source = FakeSource(without=frozenset({"vllm:num_preemptions_total"}))
    watched = Watched(source)
    assert chart_points(watched, "preemptions", span_s=300, window_s=15) == []
    assert len(chart_points(watched, "running", span_s=300, window_s=15)) > 50


def test_a_share_within_the_bound_has_its_interval() -> None:
    """Between two buckets it is as wide as both allow; gaps of a request hang together."""
    buckets = ((0.25, 40.0), (0.5, 90.0), (1.0, 100.0), (math.inf, 100.0))
    mean = Reading(Outcome.VALUE, 0.3, "ttft", 60.0, 100)
    [exact], [between] = (latency_slos([f"ttft_p95<{bound}"]) for bound in ("500ms", "700ms"))
    latency = Latency("ttft", mean, {}, buckets)
    assert exact.attained_interval(latency) == pytest.approx(clopper_pearson(90, 100))
    assert between.attained_interval(latency) == pytest.approx((clopper_pearson(90, 100)[0], 1.0))
    [gaps] = latency_slos(["itl_p95<500ms"])
    assert gaps.attained_interval(Latency("itl", mean, {}, buckets)) is None
    assert exact.attained_interval(Latency("ttft", mean, {}, ())) is None
