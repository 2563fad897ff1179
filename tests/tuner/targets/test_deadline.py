"""A server that drips its answer has the time of one that is silent, and no more."""

from __future__ import annotations

import pytest

from tests.tuner.dripping import dripping, within
from tuner import endpoint
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.targets import TargetError, http

BODY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
HEADERS = b"HTTP/1.1 200 OK\r\nX-Slow: "
REFUSAL = b"HTTP/1.1 500 Oops\r\nContent-Length: 100000\r\n\r\nbroken"


@pytest.mark.parametrize("head", [BODY, HEADERS, b"HTTP/1.1 "])
def test_the_probe_ends(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MODELS_TIMEOUT_S", 0.3)
    with dripping(head) as url, within(5), pytest.raises(UserError) as caught:
        Endpoint(url).probe()
    assert str(caught.value).startswith(f"nothing answers at {url}/v1/models (no whole answer")


@pytest.mark.parametrize("head", [BODY, REFUSAL])
def test_a_one_token_request_ends(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PROBE_TIMEOUT_S", 0.3)
    with dripping(head) as url, within(5), pytest.raises(UserError) as caught:
        Endpoint(url, "m")._post({"prompt": "x"})
    assert "no whole answer within 0.3 s" in str(caught.value)


@pytest.mark.parametrize("head", [BODY, HEADERS])
def test_a_call_ends(head: bytes) -> None:
    with dripping(head) as url, within(5), pytest.raises(TargetError) as caught:
        http.call(url, timeout_s=0.3)
    assert "no whole answer within 0.3 s" in str(caught.value)


def test_a_refusals_reason_is_not_waited_for() -> None:
    with dripping(REFUSAL) as url, within(5), pytest.raises(http.HttpRefusalError) as caught:
        http.call(url, timeout_s=0.3)
    assert (caught.value.status, caught.value.reason) == (500, "HTTP 500")
