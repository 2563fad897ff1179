"""What the probe finds out about a server, and one clear sentence where it is none."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.tuner.fake_server import TEMPLATE_TOKENS, TOKENS_PER_WORD, FakeServer
from tuner.endpoint import Endpoint, base_url
from tuner.errors import UserError
from tuner.load import LoadPlan, generate
from tuner.measure import measure
from tuner.workload import parse_workload


def test_takes_token_ids_and_forced_lengths() -> None:
    with FakeServer(max_model_len=2048) as server:
        found = Endpoint(server.url).probe()
    assert (found.model, found.token_ids, found.forced_lengths) == ("fake", True, True)
    assert found.max_model_len == 2048


def test_plain_openai_server_gets_text_without_extras() -> None:
    with FakeServer(token_ids=False, forced_lengths=False) as server:
        found = Endpoint(server.url).probe()
    assert (found.token_ids, found.forced_lengths) == (False, False)
    assert found.tokens_per_word == TOKENS_PER_WORD
    assert found.max_model_len is None


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_text_prompts_come_out_at_their_length(api: str) -> None:
    with FakeServer(token_ids=False) as server:
        endpoint = Endpoint(server.url, api=api).probe()  # type: ignore[arg-type]
        assert endpoint.template_tokens == (TEMPLATE_TOKENS if api == "chat" else 0)
        workload = parse_workload("prompt=101,output=2,concurrency=1")
        made = measure(endpoint, workload, duration_s=5, warmup_s=0, max_requests=3)
    assert made.counts["ok"] == 3
    assert all(abs(record.prompt_tokens - 101) <= TOKENS_PER_WORD for record in made.records)
    assert made.notes == []


def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match="nothing answers"):
        Endpoint(f"http://127.0.0.1:{port}").probe()


def test_wrong_model_names_the_served() -> None:
    with FakeServer() as server, pytest.raises(UserError, match="it serves: fake"):
        Endpoint(server.url, model="other").probe()


def test_wrong_key() -> None:
    with FakeServer(api_key="secret") as server:
        with pytest.raises(UserError, match="--api-key"):
            Endpoint(server.url).probe()
        assert Endpoint(server.url, api_key="secret").probe().model == "fake"


def test_chat_only_server_is_pointed_out() -> None:
    with FakeServer(apis=["/v1/chat/completions"]) as server:
        with pytest.raises(UserError, match="try --api chat"):
            Endpoint(server.url).probe()
        assert Endpoint(server.url, api="chat").probe().forced_lengths


def test_some_other_web_server() -> None:
    with FakeServer() as server, pytest.raises(UserError, match="OpenAI-compatible"):
        Endpoint(f"{server.url}/elsewhere").probe()


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (b"[" * 200_000, "not an OpenAI-compatible list of models"),
        (b" " * (5 << 20), "answers with more than 4 MiB"),
        (b'{"data": [{"id": "a", "max_model_len": 1e400}]}', "not an OpenAI-compatible list"),
        (b'{"data": [{"id": "\\u001b[2Jx"}]}', "control characters"),
    ],
)
def test_hostile_list_of_models_is_one_sentence(page: bytes, says: str) -> None:
    with FakeServer(models_page=page) as server, pytest.raises(UserError, match=says) as told:
        Endpoint(server.url).probe()
    assert str(told.value).isprintable()


GIVE = "give its address"


def test_redirect_is_told_not_followed() -> None:
    """The load would not follow it: http to https, or a path of another proxy."""
    with FakeServer() as server, redirecting(server.url) as url:
        with pytest.raises(UserError, match=f"HTTP 307: it redirects to {server.url}/v1/models"):
            Endpoint(url).probe()
        status, text = Endpoint(url, "fake")._post({"prompt": "x"})
        assert (status, text) == (307, f"it redirects to {server.url}/v1/completions; {GIVE}")
        workload = parse_workload("prompt=8,output=2,concurrency=1")
        load = generate(LoadPlan(Endpoint(url, "fake"), workload, 0, 30.0, max_requests=1))
        assert load.records[0].error.startswith("HTTP 307: it redirects to " + server.url)


@contextlib.contextmanager
def redirecting(target: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", target + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://host:8000/v1/", "http://host:8000"),
        ("https://host/path", "https://host/path"),
        (" http://[::1]:80 ", "http://[::1]:80"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "http://h:99999", "http://h:0"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(UserError, match="not an address"):
        base_url(text)


def test_a_password_is_never_dropped_silently_nor_shown() -> None:
    with pytest.raises(UserError, match="--api-key") as caught:
        base_url("http://somebody:secret@127.0.0.1:8000")
    assert "secret" not in str(caught.value)
