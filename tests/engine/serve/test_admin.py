"""Live knobs: all or nothing, within the start-up bounds, visible everywhere they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.config import EngineConfig
from engine.serve.options import ServeOptions
from tests.engine.serve.harness import RunningServer, running

CONFIG = EngineConfig(
    max_num_seqs=8,
    chunk_size=64,
    max_num_seqs_limit=32,
    chunk_size_limit=128,
    gpu_memory_utilization=0.5,
    gpu_memory_utilization_limit=0.75,
)


@pytest.fixture
def admin() -> Iterator[RunningServer]:
    with running(CONFIG, ServeOptions(enable_admin=True)) as server:
        yield server


def change(server: RunningServer, **knobs: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/admin/config", json=knobs)


def knobs(server: RunningServer) -> dict[str, Any]:
    return dict(httpx.get(f"{server.url}/admin/config").json()["knobs"])


def test_a_change_is_in_force_and_shown(admin: RunningServer) -> None:
    before = knobs(admin)
    assert before["max_num_seqs"] == {"value": 8, "low": 1, "high": 32, "live": True}
    assert before["gpu_memory_utilization"]["high"] == 0.75
    answer = change(admin, max_num_seqs=16, chunk_size=128, gpu_memory_utilization=0.75)
    assert answer.status_code == 200, answer.text
    after = answer.json()["knobs"]
    values = {name: knob["value"] for name, knob in after.items()}
    assert values == {"max_num_seqs": 16, "chunk_size": 128, "gpu_memory_utilization": 0.75}
    info = httpx.get(f"{admin.url}/server_info").json()
    assert info["knobs"] == after == knobs(admin)
    assert info["kv_blocks_cap"] == 48
    page = admin.metrics()
    assert page.value("slotune:scheduler_config_info", max_num_seqs="16", chunk_size="128") == 1
    assert page.value("vllm:cache_config_info", num_gpu_blocks="48") == 1
    admin.wait_for(lambda page: page.value("slotune:kv_blocks", state="free") == 48)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"max_num_seqs": 33}, "max_num_seqs"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_seqs": 8.5}, "max_num_seqs"),
        ({"max_num_seqs": True}, "max_num_seqs"),
        ({"chunk_size": 129}, "chunk_size"),
        ({"chunk_size": 3}, "chunk_size"),
        ({"gpu_memory_utilization": 0.76}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": "0.5"}, "gpu_memory_utilization"),
        ({"max_num_seqs": 4, "block_size": 8}, "block_size"),
        ({}, None),
    ],
)
def test_a_wrong_change_changes_nothing(
    admin: RunningServer, wrong: dict[str, Any], param: str | None
) -> None:
    before = knobs(admin)
    answer = change(admin, **({"max_num_seqs": 4} | wrong if wrong else {}))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert knobs(admin) == before


def test_body_that_is_no_object(admin: RunningServer) -> None:
    for raw in (b"", b"[1]", b"{"):
        answer = httpx.post(f"{admin.url}/admin/config", content=raw)
        assert answer.status_code == 400
        assert "JSON" in answer.json()["error"]["message"]


def test_reset_prefix_cache(admin: RunningServer) -> None:
    body = {"prompt": "the same prompt, longer than one block", "max_tokens": 1}
    url = f"{admin.url}/v1/completions"

    def cached() -> int:
        usage = httpx.post(url, json=body).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert cached() == 0
    assert cached() == 32
    assert httpx.post(f"{admin.url}/reset_prefix_cache").status_code == 200
    assert cached() == 0


def test_without_the_flag_the_endpoint_says_how_to_get_it(server: RunningServer) -> None:
    for method, path in (
        ("GET", "/admin/config"),
        ("POST", "/admin/config"),
        ("POST", "/reset_prefix_cache"),
    ):
        answer = httpx.request(method, f"{server.url}{path}")
        assert answer.status_code == 404
        assert "--enable-admin" in answer.json()["error"]["message"]


def test_server_info_is_complete(server: RunningServer) -> None:
    info = httpx.get(f"{server.url}/server_info").json()
    assert info["engine"] == "slotune"
    assert info["admin"] is False
    assert info["num_kv_blocks"] == 64
    assert info["memory"]["weights_bytes"] == 100
    expected = {
        "version", "instance_id", "pid", "started_unix_s", "model", "served_model_name", "device",
        "dtype", "max_model_len", "block_size", "kv_blocks_cap", "kv_bytes_per_token",
        "attention_backend", "num_threads", "enable_prefix_caching", "knobs",
    }  # fmt: skip
    assert expected <= set(info)


def test_the_api_key_guards_everything_but_health_and_metrics() -> None:
    with running(options=ServeOptions(api_key="secret")) as guarded:
        for path in ("/v1/models", "/server_info", "/v1/completions", "/admin/config"):
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                answer = httpx.get(f"{guarded.url}{path}", headers=headers)
                assert answer.status_code == 401, path
                assert answer.json()["error"]["code"] == "invalid_api_key"
        right = {"Authorization": "Bearer secret"}
        assert httpx.get(f"{guarded.url}/v1/models", headers=right).status_code == 200
        assert httpx.get(f"{guarded.url}/health").status_code == 200
        assert httpx.get(f"{guarded.url}/metrics").status_code == 200
