"""Requests that ask for too much: refused soon, without holding up the others."""

from __future__ import annotations

import threading

import httpx
import pytest

from engine.serve import service
from tests.engine.serve.harness import RunningServer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", {"prompt": ["a"] * 2_000}),
        ("completions", {"prompt": ["a"] * 200, "n": 100}),
        ("chat/completions", {"messages": [{"role": "u" * 1_000_000, "content": "a"}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "a"}] * 20_000}),
    ],
)
def test_what_can_never_be_served_is_refused_before_it_is_tokenized(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
) -> None:
    monkeypatch.setattr(type(server.service.tokenizer), "encode", lambda *_, **__: 1 / 0)
    assert httpx.post(f"{server.url}/v1/{path}", json=body).status_code == 400


def test_several_long_texts_are_tokenized_beside_the_event_loop(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def encode(*_: object, **__: object) -> list[int]:
        threads.append(threading.current_thread().name)
        return [1]

    monkeypatch.setattr(service, "_LONG_TEXT_CHARS", 100)
    monkeypatch.setattr(type(server.service.tokenizer), "encode", encode)
    body = {"prompt": ["a" * 60] * 2, "max_tokens": 1}
    assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 200
    assert [name.startswith(("asyncio", "uvloop")) for name in threads] == [True, True], threads


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a", "x" * 100_000: 1}),
        ("/v1/completions", {"prompt": "a", "stream_options": {"x" * 100_000: 1}}),
        ("/v1/completions", {"prompt": "a", "temperature": "x" * 100_000}),
        ("/v1/chat/completions", {"messages": [{"role": "u", "content": [{"type": "x" * 9_999}]}]}),
        ("/admin/config", {"x" * 100_000: 1}),
        ("/admin/config", {"max_num_seqs": "x" * 100_000}),
        ("/v1/" + "x" * 10_000, {}),
    ],
)
def test_a_refusal_repeats_no_more_than_a_line_holds(
    server: RunningServer, path: str, body: dict[str, object]
) -> None:
    response = httpx.post(f"{server.url}{path}", json=body)
    assert response.status_code in (400, 404)
    assert len(response.text) < 1_000


def test_the_deepest_value_that_json_may_hold_is_refused(server: RunningServer) -> None:
    for depth in (500, 990, 1_020):
        deep = b"[" * depth + b"]" * depth
        response = httpx.post(
            f"{server.url}/v1/completions", content=b'{"prompt":"a","temperature":%b}' % deep
        )
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "temperature"
