"""The engine loop dies: nothing waits for ever, and everybody is told."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from engine.config import EngineConfig
from tests.engine.fake_runner import FakeRunner
from tests.engine.serve.harness import running


@pytest.mark.parametrize("stream", [False, True])
def test_a_crash_fails_the_request_and_health(stream: bool) -> None:
    runner = FakeRunner(crash=RuntimeError("the model broke"))
    with running(runner=runner) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
        body = {"prompt": "abc", "stream": stream}
        for _ in range(2):  # the one it happened to, and the next
            answer = httpx.post(f"{server.url}/v1/completions", json=body)
            assert answer.status_code == 500
            assert "the model broke" in answer.json()["error"]["message"]
        health = httpx.get(f"{server.url}/health")
        assert health.status_code == 503
        assert "the model broke" in health.json()["error"]["message"]
        page = server.metrics()
        assert page.value("vllm:request_success_total", finished_reason="error") == 2
        assert page.value("vllm:num_requests_running") == 0


def test_a_crash_in_the_middle_of_a_stream_is_told_in_the_stream() -> None:
    runner = FakeRunner(step_s=0.01)
    with running(runner=runner) as server:
        body = {"prompt": "abc", "stream": True, "max_tokens": 200}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            runner.crash = RuntimeError("the model broke")
            events = [line[len("data: ") :] for line in lines if line]
        assert answer.status_code == 200
        assert events[-1] == "[DONE]"
        assert "the model broke" in json.loads(events[-2])["error"]["message"]


def test_shutdown_ends_running_requests_promptly() -> None:
    answers = []
    with running(runner=FakeRunner(step_s=0.02)) as server:
        url = f"{server.url}/v1/completions"
        body = {"prompt": "abc", "max_tokens": 250, "ignore_eos": True}
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(url, json=body, timeout=30))
        )
        asking.start()
        server.wait_for(lambda page: page.value("vllm:num_requests_running") == 1)
    asking.join(10)
    assert answers[0].status_code == 503
    assert "shutting down" in answers[0].json()["error"]["message"]


def test_a_full_queue_is_refused_with_503_and_counted() -> None:
    config = EngineConfig(max_num_seqs=1, chunk_size=64, max_num_queued_reqs=1)
    with running(config, runner=FakeRunner(step_s=0.02)) as server:
        url = f"{server.url}/v1/completions"
        # Three outputs at once: one queue place, so the request is refused as a whole.
        answer = httpx.post(url, json={"prompt": "abc", "n": 3, "max_tokens": 5})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["code"] == "max_num_queued_reqs"
        page = server.metrics()
        assert page.value("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
        server.wait_idle()
        assert httpx.post(url, json={"prompt": "abc", "max_tokens": 2}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_larger_than_the_kv_pool_is_refused_at_once(stream: bool) -> None:
    with running(runner=FakeRunner(num_kv_blocks=4)) as server:
        body = {"prompt": "a" * 100, "max_tokens": 5, "stream": stream}
        answer = httpx.post(f"{server.url}/v1/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "kv_pool_exceeded"
