"""The embedded scraper and a real Prometheus server, side by side on one changing exposition.

Both scrape once a second, at different moments. Every counter stands still around its reset, so
that neither can miss growth that the other saw; what remains is sampling phase. On a busy machine
either may scrape late, and then they saw different servers: tests that compare figures wait for a
time in which both kept their pace (`steady`).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from storage.sources import open_source
from storage.sources.base import MetricSource, Outcome, Reading, Wanted
from storage.sources.prometheus import PrometheusSource
from storage.sources.scrape import ScrapeSource
from storage.sources.store import HORIZON_S
from tests.storage.conftest import free_port, wait_until
from tests.storage.sources.serving import Serving, serving

WINDOW_S = 8.0
SCRIPT_S = 13.0
VANISHES_S = 5.0
TOLERANCE = 0.04
LABELS = 'model_name="a \\"b\\" \\\\c",engine="0"'
BUCKETS = {"0.1": 0.2, "0.5": 0.6, "1.0": 0.9, "+Inf": 1.0}


def grown(age_s: float) -> float:
    """Seconds of growth: 0…5 s, then still, reset at 6.5 s, still until 8 s, then growing again."""
    if age_s < 6.5:
        return min(age_s, 5.0)
    return max(0.0, age_s - 8.0)


def histogram(name: str, count: float, mean: float, shares: dict[str, float]) -> str:
    lines = [f'{name}_bucket{{{LABELS},le="{le}"}} {count * s}' for le, s in shares.items()]
    lines += [f"{name}_sum{{{LABELS}}} {count * mean}", f"{name}_count{{{LABELS}}} {count}"]
    return "\n".join([f"# TYPE {name} histogram", *lines])


def exposition(age_s: float) -> str:
    parts = [
        "process_start_time_seconds 1700000000",
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="40"} 1',
        'vllm:kv_cache_usage_perc{engine="0"} 0.0\nvllm:kv_cache_usage_perc{engine="1"} 0.65',
        f"vllm:num_requests_running{{{LABELS}}} {10 + age_s / 100}",
        "vllm:empty NaN",
        "# TYPE vllm:tokens_total counter",
        f"vllm:tokens_total{{{LABELS}}} {1000 + 100 * grown(age_s)}",
        f'vllm:tokens_total{{model_name="z",engine="1"}} {50 * age_s}',
        f'vllm:done_total{{finished_reason="stop"}} {20 * age_s}',
        f'vllm:done_total{{finished_reason="abort"}} {3 * age_s}',
        histogram("vllm:latency_seconds", 500 + 40 * age_s, 0.3, BUCKETS),
        histogram("vllm:restarting_seconds", 40 * grown(age_s), 0.3, BUCKETS),
        histogram("vllm:slow_seconds", 10 * age_s, 9.0, {"0.1": 0.1, "1.0": 0.2, "+Inf": 1.0}),
        histogram("vllm:fast_seconds", 10 * age_s, 0.01, {"0.1": 0.99, "1.0": 1.0, "+Inf": 1.0}),
        histogram("vllm:idle_seconds", 70, 0.3, BUCKETS),
    ]
    if age_s < VANISHES_S:
        parts.append("vllm:fleeting 1")
    return "\n".join(parts) + "\n"


@dataclass
class Pair:
    scraped: MetricSource
    asked: MetricSource
    target: Serving


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: parity was not tested")
    start_s = time.monotonic()
    with serving(lambda: exposition(time.monotonic() - start_s)) as target:
        folder = tmp_path_factory.mktemp("prometheus")
        process, url = start_prometheus(program, folder, target.url)
        try:
            wait_until(lambda: target.asked > 0, "the first scrape by Prometheus")
            start_s = time.monotonic()  # the script starts once both watch
            scraped = ScrapeSource(target.url, scrape_interval_s=1.0)
            asked = open_source(prometheus=url, scrape_interval_s=1.0, labels={"job": "engine"})
            time.sleep(SCRIPT_S)
            yield Pair(scraped, asked, target)
            scraped.close()
            asked.close()
        finally:
            process.terminate()
            process.wait(timeout=20)


def start_prometheus(
    program: str, folder: Path, target: str
) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: engine, static_configs: [{{targets: ['{target.split('//')[1]}']}}]}}\n"
        f"  - {{job_name: self, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
    )
    process = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    return process, f"http://127.0.0.1:{port}"


CLOCK, CLOCK_PER_S = 'vllm:done_total{finished_reason="stop"}', 20.0
"""A counter that says how old the page is."""

LATE_S = 0.05
"""1 % of the shortest window compared here: a quarter of TOLERANCE."""


def on_time(samples: list[tuple[float, float]], covered_s: float) -> bool:
    """Whether the last seconds were sampled each second, by pages as old as their samples say.

    A sample's time is when it was asked for, its value what held when it was answered; on a busy
    machine these differ, by other amounts for either source.
    """
    recent = [(at_s, value) for at_s, value in samples if at_s > samples[-1][0] - covered_s]
    gaps_s = [after - before for (before, _), (after, _) in pairwise(recent)]
    began_s = [at_s - value / CLOCK_PER_S for at_s, value in recent]
    return (
        len(recent) >= covered_s - 1
        and all(0.9 < gap_s < 1.1 for gap_s in gaps_s)
        and max(began_s) - min(began_s) < LATE_S
    )


@pytest.fixture
def steady(pair: Pair) -> Pair:
    """Both sources after a time in which both kept their pace: what they then tell must agree."""
    scraped, asked, covered_s = pair.scraped, pair.asked, WINDOW_S + 3
    assert isinstance(scraped, ScrapeSource)
    assert isinstance(asked, PrometheusSource)

    def kept_pace() -> bool:
        with scraped._lock:
            (own,) = scraped._store.find("vllm:done_total", {"finished_reason": "stop"})
            mine = list(zip(own.times_s, own.values, strict=True))
        ((_, theirs),) = asked.client.matrix(CLOCK, HORIZON_S, time.time())
        fresh = min(mine[-1][0], theirs[-1][0]) > time.time() - 1.5
        return fresh and on_time(mine, covered_s) and on_time(theirs, covered_s)

    wait_until(kept_pace, "eleven seconds in which both sources scraped on time", limit_s=120)
    return pair


def same(mine: Reading, theirs: Reading, tolerance: float = TOLERANCE) -> None:
    assert (mine.outcome, theirs.outcome) == (Outcome.VALUE, Outcome.VALUE), (mine, theirs)
    assert mine.value == pytest.approx(theirs.value, rel=tolerance)
    assert mine.bound == theirs.bound
    assert mine.window_s == theirs.window_s
    assert abs(mine.at_s - theirs.at_s) < 3.0


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


def test_the_engine_is_told_from_other_targets_without_labels(pair: Pair) -> None:
    assert isinstance(pair.asked, PrometheusSource)
    source = PrometheusSource(pair.asked.client._url, scrape_interval_s=1.0)
    assert source.status().up
    assert not any(name.startswith("prometheus_") for name in source.names())
    source.close()


NAMES = (
    "vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:tokens_total", "vllm:fleeting",
    "vllm:done_total", "vllm:cache_config_info", "vllm:empty", "process_start_time_seconds",
    *(f"vllm:{name}_seconds_{end}" for name in ("latency", "slow", "fast", "idle", "restarting")
      for end in ("bucket", "sum", "count")),
)  # fmt: skip


def gathered(pair: Pair, window_s: float = 11.0) -> MetricSource:
    return pair.asked.at_once(Wanted(frozenset(NAMES), window_s))


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


def test_a_target_that_went_down(pair: Pair) -> None:
    """Last, because it ends the target's answers."""
    pair.target.status = 500
    for source in (pair.scraped, pair.asked):
        wait_until(lambda source=source: not source.status().up, "the fault to be seen")
        reading = source.gauge("vllm:kv_cache_usage_perc")
        assert reading.outcome is Outcome.UNREACHABLE
        assert reading.reason
    look = gathered(pair)
    assert not look.status().up
    assert look.gauge("vllm:kv_cache_usage_perc").outcome is Outcome.UNREACHABLE
