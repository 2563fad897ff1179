"""A client that goes away takes its work with it: streaming or not, before or after the first
byte. Seen on real sockets; the KV blocks come back."""

from __future__ import annotations

import json
import socket

import pytest

from tests.engine.serve.harness import RunningServer

LONG = 200


def open_request(server: RunningServer, **fields: object) -> socket.socket:
    body = json.dumps({"prompt": "abc", "max_tokens": LONG, "ignore_eos": True, **fields}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def assert_aborted(server: RunningServer, *, aborted_before: float) -> None:
    server.wait_idle()
    page = server.metrics()
    assert page.value("vllm:request_success_total", finished_reason="abort") == aborted_before + 1
    assert page.value("slotune:kv_blocks", state="used") == 0
    assert page.value("vllm:kv_cache_usage_perc") == 0


def aborted(server: RunningServer) -> float:
    return server.metrics().value("vllm:request_success_total", finished_reason="abort")


def client_faults(server: RunningServer) -> float:
    """Requests to the route that ended as 4xx."""
    samples = server.metrics().samples.items()
    return sum(v for (name, labels), v in samples if _is_client_fault(name, dict(labels)))


def _is_client_fault(name: str, labels: dict[str, str]) -> bool:
    return (
        name == "http_requests_total"
        and labels["handler"] == "/v1/completions"
        and labels["status"] == "4xx"
    )


def test_disconnect_in_the_middle_of_a_stream(slow_server: RunningServer) -> None:
    before = aborted(slow_server)
    connection = open_request(slow_server, stream=True)
    received = b""
    while received.count(b"data: ") < 3:
        received += connection.recv(4096)
    connection.close()
    assert_aborted(slow_server, aborted_before=before)


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_before_the_first_byte(slow_server: RunningServer, stream: bool) -> None:
    before = aborted(slow_server)
    gone_before = client_faults(slow_server)
    with slow_server.paused():  # no step is made: nothing can have been sent
        connection = open_request(slow_server, stream=stream)
        slow_server.wait_submitted()
        connection.close()
    assert_aborted(slow_server, aborted_before=before)
    slow_server.wait_for(lambda _: client_faults(slow_server) == gone_before + 1)


def test_disconnect_of_a_request_that_is_not_streamed(slow_server: RunningServer) -> None:
    before = aborted(slow_server)
    connection = open_request(slow_server, stream=False)
    slow_server.wait_for(lambda page: page.value("vllm:num_requests_running") == 1)
    connection.close()
    assert_aborted(slow_server, aborted_before=before)


def test_other_requests_go_on(slow_server: RunningServer) -> None:
    leaving = open_request(slow_server, stream=True)
    staying = open_request(slow_server, stream=False, max_tokens=30)
    leaving.recv(4096)
    leaving.close()
    received = b""
    while b'"usage"' not in received:
        part = staying.recv(65536)
        assert part
        received += part
    staying.close()
    answer = json.loads(received.partition(b"\r\n\r\n")[2])
    assert answer["usage"]["completion_tokens"] == 30
    slow_server.wait_idle()


def test_a_client_that_leaves_within_its_body_is_its_own_fault(
    slow_server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    gone_before = client_faults(slow_server)
    with socket.create_connection(("127.0.0.1", slow_server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        )
        slow_server.metrics()  # an answer on another connection: the half request has been read
    slow_server.wait_for(lambda _: client_faults(slow_server) == gone_before + 1)
    assert "Exception" not in caplog.text
