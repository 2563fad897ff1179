"""What /metrics says after known traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engine.config import EngineConfig
from engine.core import StepResult
from engine.metrics.engine import EngineMetrics
from engine.metrics.names import OWN_METRICS, VLLM_METRICS
from tests.engine.fake_runner import FakeRunner
from tests.engine.serve.harness import MODEL, RunningServer, running


@pytest.fixture
def fresh() -> Iterator[RunningServer]:
    with running() as server:
        yield server


def post(server: RunningServer, **fields: object) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json=fields)


def test_idle_page(fresh: RunningServer) -> None:
    fresh.wait_for(lambda page: page.value("slotune:kv_blocks", state="free") == 58)
    page = fresh.metrics()
    for spec in VLLM_METRICS + OWN_METRICS:
        sample = {"counter": "_total", "histogram": "_count"}.get(spec.kind, "")
        assert spec.name + sample in page.label_names
    for name in ("vllm:cache_config_info", "slotune:scheduler_config_info"):
        assert page.value(name) == 1
    info = {
        name: page.label_values["vllm:cache_config_info", name]
        for name in ("block_size", "num_gpu_blocks", "enable_prefix_caching", "engine")
    }
    assert info == {
        "block_size": {"16"},
        "num_gpu_blocks": {"58"},
        "enable_prefix_caching": {"True"},
        "engine": {"0"},
    }
    assert page.value("slotune:device_memory_bytes", kind="free") == 150


def test_idle_time_grows_while_the_engine_is_idle(fresh: RunningServer) -> None:
    fresh.wait_for(lambda page: page.value("slotune:engine_idle_seconds_total") > 0)
    told = fresh.metrics().value("slotune:engine_idle_seconds_total")
    fresh.wait_for(lambda page: page.value("slotune:engine_idle_seconds_total") > told)


def test_work_between_two_steps_is_busy_time(
    fresh: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a step: the model's thread can do nothing else meanwhile."""
    on_step, dawdles_s, steps = EngineMetrics.on_step, 0.05, 8

    def told(metrics: EngineMetrics, result: StepResult, *, busy_s: float) -> None:
        on_step(metrics, result, busy_s=busy_s)
        time.sleep(dawdles_s)

    monkeypatch.setattr(EngineMetrics, "on_step", told)
    post(fresh, prompt="abcde", max_tokens=steps)
    fresh.wait_for(
        lambda page: page.value("slotune:engine_busy_seconds_total") >= steps * dawdles_s
    )
    page = fresh.metrics()
    assert page.total("slotune:step_duration_seconds_sum") < steps * dawdles_s / 2


def test_a_finished_request_moves_every_figure(fresh: RunningServer) -> None:
    post(fresh, prompt="abcde", max_tokens=4, n=2)
    page = fresh.metrics()
    assert page.value("vllm:prompt_tokens_total", model_name=MODEL, engine="0") == 10
    assert page.value("vllm:generation_tokens_total") == 8
    assert page.value("vllm:request_success_total", finished_reason="length") == 2
    assert page.value("vllm:time_to_first_token_seconds_count") == 2
    assert page.value("vllm:inter_token_latency_seconds_count") == 6
    for name in ("queue", "prefill", "decode", "inference"):
        assert page.value(f"vllm:request_{name}_time_seconds_count") == 2
        assert page.value(f"vllm:request_{name}_time_seconds_sum") >= 0
    assert page.value("vllm:e2e_request_latency_seconds_count") == 2
    assert page.value("vllm:request_time_per_output_token_seconds_count") == 2
    assert page.value("vllm:request_params_max_tokens_sum") == 8
    assert page.value("vllm:request_prompt_tokens_sum") == 10
    assert page.value("vllm:request_generation_tokens_sum") == 8
    assert page.value("vllm:prefix_cache_queries_total") == 10
    fresh.wait_for(lambda page: page.value("vllm:request_params_n_count") == 1)
    page = fresh.metrics()
    assert page.value("vllm:request_params_n_sum") == 2
    assert page.value("vllm:request_max_num_generation_tokens_sum") == 4
    assert page.value("vllm:iteration_tokens_total_sum") == 10 + 6
    assert page.value("slotune:step_duration_seconds_count", phase="forward") == page.value(
        "vllm:iteration_tokens_total_count"
    )
    assert page.total("slotune:step_binding_limit_total") == page.value("slotune:batch_size_count")


def test_one_token_has_no_time_per_output_token(fresh: RunningServer) -> None:
    post(fresh, prompt="abc", max_tokens=1)
    page = fresh.metrics()
    assert page.value("vllm:request_time_per_output_token_seconds_count") == 0
    assert page.value("vllm:e2e_request_latency_seconds_count") == 1


def test_cached_prompt_tokens_are_told_apart(fresh: RunningServer) -> None:
    for _ in range(2):
        post(fresh, prompt="x" * 40, max_tokens=1)
    page = fresh.metrics()
    assert page.value("vllm:prompt_tokens_total") == 80
    assert page.value("vllm:prompt_tokens_cached_total") == 32
    assert page.value("vllm:prompt_tokens_by_source_total", source="local_compute") == 48
    assert page.value("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == 32
    assert page.value("vllm:prefix_cache_hits_total") == 32
    assert page.value("slotune:kv_blocks", state="cached") > 0
    assert page.value("vllm:kv_cache_usage_perc") == 0


def test_a_refused_request_is_in_no_latency_histogram(fresh: RunningServer) -> None:
    assert post(fresh, prompt="x" * 300).status_code == 400
    page = fresh.metrics()
    assert page.value("vllm:time_to_first_token_seconds_count") == 0
    assert page.value("vllm:e2e_request_latency_seconds_count") == 0
    labels = {"handler": "/v1/completions", "method": "POST", "status": "4xx"}
    assert page.value("http_requests_total", **labels) == 1


def test_waiting_and_preempted_requests_show() -> None:
    config = EngineConfig(max_num_seqs=2, chunk_size=64, enable_prefix_caching=False)
    with running(config, runner=FakeRunner(num_kv_blocks=9, step_s=0.005)) as server:
        answer = post(server, prompt="a" * 30, max_tokens=60, n=3)
        assert answer.status_code == 200
        assert {choice["text"] for choice in answer.json()["choices"]} == {"a" * 60}
        page = server.metrics()
        assert page.value("vllm:num_preemptions_total") > 0
        assert page.value("slotune:preempted_tokens_total") > 0
        assert page.value("slotune:step_binding_limit_total", reason="kv_pressure") > 0
        assert page.value("vllm:request_num_preemptions_sum") > 0


def test_streams_are_timed_until_their_last_byte() -> None:
    with running(runner=FakeRunner(step_s=0.02)) as server:
        post(server, prompt="abc", max_tokens=10, stream=True)
        server.wait_for(lambda page: page.value("http_request_duration_highr_seconds_count") == 1)
        assert server.metrics().value("http_request_duration_highr_seconds_sum") >= 0.2


def test_requests_that_come_during_a_long_step_wait_in_the_queue() -> None:
    """They show as waiting at once, and their wait counts as queue time, not as front end."""
    with running(runner=FakeRunner(step_s=0.01)) as server, ThreadPoolExecutor(3) as clients:
        with server.paused():
            first = clients.submit(post, server, prompt="abc", max_tokens=1)
            server.wait_for(lambda page: page.value("vllm:num_requests_running") == 1)
            late = [clients.submit(post, server, prompt="def", max_tokens=1) for _ in range(2)]
            server.wait_for(lambda page: page.value("vllm:num_requests_waiting") == 2)
            page = server.metrics()
            assert page.value("vllm:num_requests_waiting_by_reason", reason="capacity") == 2
            held_from = time.monotonic()
            time.sleep(0.3)
            held_s = time.monotonic() - held_from
        assert {answer.result().status_code for answer in (first, *late)} == {200}
        server.wait_idle()
        page = server.metrics()
        assert page.value("vllm:request_queue_time_seconds_sum") >= 2 * held_s
        outside_s = page.value("vllm:e2e_request_latency_seconds_sum") - sum(
            page.value(f"vllm:request_{part}_time_seconds_sum") for part in ("queue", "inference")
        )
        assert outside_s < held_s
