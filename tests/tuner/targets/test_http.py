"""Small calls to a server's operational routes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tuner.targets import TargetError, http


@pytest.fixture
def url() -> Iterator[str]:
    """A server that answers GET /N with N bytes of JSON, and /fail/N with 500 and as many."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.path.rpartition("/")[2])
            self.send_response(500 if "fail" in self.path else 200)
            self.end_headers()
            self.wfile.write(b'"' + b"x" * (size - 2) + b'"')

        def log_message(self, *words: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_answer_without_end_is_not_kept(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1 << 20)
    assert len(http.call(f"{url}/{1 << 20}")) == (1 << 20) - 2
    with pytest.raises(TargetError, match="more than 1 MiB"):
        http.call(f"{url}/{(1 << 20) + 1}")


def test_a_refusal_is_short(url: str) -> None:
    with pytest.raises(http.HttpRefusalError) as caught:
        http.call(f"{url}/fail/{1 << 22}")
    assert caught.value.status == 500
    assert len(caught.value.reason) <= 300


def test_the_api_key_goes_to_no_other_server() -> None:
    seen: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None: ...

    class Redirecting(Other):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{other.server_port}/")
            self.end_headers()

    other, first = (ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (Other, Redirecting))
    for server in (other, first):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(http.HttpRefusalError) as caught:
        http.call(f"http://127.0.0.1:{first.server_port}/server_info", api_key="K")
    for server in (other, first):
        server.shutdown()
        server.server_close()
    assert caught.value.status == 302
    assert seen == []
