"""Watching a live exposition: by scraping it, and through a real Prometheus server."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.storage.conftest import wait_until
from tests.storage.sources.real_prometheus import prometheus_of
from tests.storage.sources.serving import serving
from tuner.server_side import PrometheusTarget, Series, ServerSide, watching

TTFT = "vllm:time_to_first_token_seconds"


class Engine:
    """Counts up when told to."""

    def __init__(self) -> None:
        self.requests = 100

    def exposition(self) -> str:
        n = self.requests
        return (
            f'vllm:num_requests_running{{engine="0"}} {n % 7}\n'
            f'vllm:num_requests_running{{engine="1",pid="1"}} 3\n'
            f'vllm:num_requests_running{{engine="1",pid="2"}} 0\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} 0.25\n'
            f'vllm:prompt_tokens_total{{engine="0"}} {10 * n}\n'
            f'vllm:generation_tokens_total{{engine="0"}} {4 * n}\n'
            f'vllm:generation_tokens_total{{engine="1"}} {6 * n}\n'
            f'vllm:request_success_total{{finished_reason="stop"}} {n}\n'
            f'vllm:request_success_total{{finished_reason="abort"}} {2 * n}\n'
            f"{TTFT}_sum {0.2 * n}\n{TTFT}_count {n}\n"
            f'vllm:request_queue_time_seconds_bucket{{le="0.3"}} {n}\n'
            f'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {n}\n'
            f"vllm:request_queue_time_seconds_sum {0.1 * n}\n"
            f"vllm:request_queue_time_seconds_count {n}\n"
        )


def expected(side: ServerSide | None) -> None:
    assert side is not None
    assert side.finished == 30
    assert side.aborted == 60
    assert side.prompt_tokens == 300
    assert side.generation_tokens == 300
    assert side.ttft_mean_s == pytest.approx(0.2)
    assert side.first_tokens == 30
    assert side.queue_quantile_s(0.5) == (0.0, 0.3, 30)
    assert side.preemptions is None
    assert side.series is not None
    assert side.series.waiting == (None,) * len(side.series.at_s)
    assert set(side.series.kv_usage) == {0.25}
    assert set(side.series.running) <= {100 % 7 + 3, 130 % 7 + 3}  # of both engines together
    assert side.series.generation_tokens[0] == 0


def test_scraped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.server_side.watch.INTERVAL_S", 0.05)
    engine = Engine()
    with serving(engine.exposition) as target:
        began_s = time.time()
        with watching(target.url) as watch:
            asked = target.asked
            wait_until(lambda: target.asked >= asked + 3, "scrapes during the run")
            engine.requests += 30
        side = watch.result(began_s)
    expected(side)
    assert side is not None
    assert side.series is not None
    assert len(side.series.at_s) >= 4
    assert side.series.generation_tokens[-1] == 300
    assert list(side.series.at_s) == sorted(side.series.at_s)
    assert side.source.endswith("/metrics before and after")
    assert ServerSide.from_dict(json.loads(json.dumps(side.as_dict()))) == ServerSide.from_dict(
        side.as_dict()
    )


@pytest.mark.parametrize("tells_its_start", [True, False])
def test_restart_is_told_though_the_counters_end_higher(
    tells_its_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A young server: from 100 before to 30 and on to 200 after is no growth by 100."""
    monkeypatch.setattr("tuner.server_side.watch.INTERVAL_S", 30 if tells_its_start else 0.05)
    engine, starts = Engine(), [1000.0]

    def exposition() -> str:
        start = f"process_start_time_seconds {starts[-1]}\n" if tells_its_start else ""
        return engine.exposition() + start

    with serving(exposition) as target:
        with watching(target.url) as watch:
            engine.requests = 30
            starts.append(1060.0)
            asked = target.asked
            if not tells_its_start:
                wait_until(lambda: target.asked >= asked + 2, "a scrape after the restart")
            engine.requests = 200
        side = watch.result(time.time())
    assert side is not None
    assert side.restarted
    assert (side.finished, side.prompt_tokens) == (None, None)
    assert side.series is not None
    again = ServerSide.from_dict(json.loads(json.dumps(side.as_dict())))
    assert again is not None
    assert again.restarted


def test_a_long_run_keeps_a_bounded_number_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.server_side.watch.INTERVAL_S", 0.001)
    monkeypatch.setattr("tuner.server_side.watch.MOST_POINTS", 8)
    engine = Engine()
    with serving(engine.exposition) as target, watching(target.url) as watch:
        asked = target.asked
        wait_until(lambda: target.asked >= asked + 30, "thirty scrapes")
        watch.end()
        side = watch.result(time.time())
    assert side is not None
    assert side.series is not None
    assert len(side.series.at_s) <= 8 + 2


def test_no_metrics_are_no_figures() -> None:
    with watching("http://127.0.0.1:9") as watch:
        pass
    assert watch.result(0.0) is None
    absent = PrometheusTarget("http://127.0.0.1:9", {})
    with watching("http://127.0.0.1:9", absent) as asked:
        pass
    assert asked.result(0.0) is None


def test_through_prometheus(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: reading a run from it was not tested")
    engine = Engine()
    with serving(engine.exposition) as target, prometheus_of(target.url, tmp_path) as url:
        wait_until(lambda: target.asked > 2, "the first scrapes by Prometheus")
        began_s = time.time()
        with watching(target.url, PrometheusTarget(url, {"job": "engine"})) as watch:
            asked = target.asked
            engine.requests += 30
            wait_until(lambda: target.asked >= asked + 3, "scrapes during the run")
        side = watch.result(began_s)
        with watching(target.url, PrometheusTarget(url, {"job": "engine"})) as hasty:
            pass
        assert hasty.result(began_s, wait=False) is None  # the scrape after the end is to come
    expected(side)
    assert side is not None
    assert side.source == f"Prometheus at {url}, scraped every 1 s"


def test_series_round_trip_and_missing_columns() -> None:
    assert Series.from_dict(None) is None
    found = Series.from_dict({"at_s": [0.0, 1.0], "running": [3, None]})
    assert found is not None
    assert found.running == (3, None)
    assert found.preemptions == (None, None)
