"""One form for every way to write a server's address, and one sentence for what is none."""

from __future__ import annotations

import pytest

from storage.address import base_url


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        (" localhost:8000/ ", "http://localhost:8000"),
        ("https://host/v1/", "https://host"),
        ("host:8000/metrics", "http://host:8000"),
        ("http://host/some/where/v1", "http://host/some/where"),
        ("http://[::1]:8000/v1?x=1#top", "http://[::1]:8000"),
        ("http://user:word@host:1/metrics", "http://user:word@host:1"),
    ],
)
def test_one_form(text: str, base: str) -> None:
    assert base_url(text) == base


def test_what_is_dropped_is_the_callers_to_say() -> None:
    assert base_url("http://host:9090/prefix/metrics", drop=()) == "http://host:9090/prefix/metrics"


@pytest.mark.parametrize(
    "text", ["", " ", "ftp://host", "http://", "http://:8000", "host:0", "host:99999", "host:x",
             "http://[::1", "two words", "http://host/a b"],
)  # fmt: skip
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: give http://HOST:PORT"):
        base_url(text)
