"""One form for every way to write a server's address, and one sentence for what is none."""

from __future__ import annotations

import pytest

from storage.address import base_url
from storage.errors import StorageError
from storage.sources.fetch import metrics_url


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        (" localhost:8000/ ", "http://localhost:8000"),
        ("https://host/v1/", "https://host"),
        ("host:8000/metrics", "http://host:8000"),
        ("http://host/some/where/v1", "http://host/some/where"),
        ("http://[::1]:8000/v1?x=1#top", "http://[::1]:8000"),
    ],
)
def test_one_form(text: str, base: str) -> None:
    assert base_url(text) == base


def test_what_is_dropped_is_the_callers_to_say() -> None:
    assert base_url("http://host:9090/prefix/metrics", drop=()) == "http://host:9090/prefix/metrics"


@pytest.mark.parametrize(
    "text", ["", " ", "ftp://host", "http://", "http://:8000", "host:0", "host:99999", "host:x",
             "http://[::1", "http://a..b", "http://h/é", "two words", "http://host/a b"],
)  # fmt: skip
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: give http://HOST:PORT"):
        base_url(text)


def test_a_user_name_is_told_without_the_password() -> None:
    with pytest.raises(ValueError, match="holds a user name, which is not sent") as told:
        base_url("http://user:word@host:1/metrics")
    assert "word" not in str(told.value)
    with pytest.raises(StorageError, match="holds a user name"):
        metrics_url("http://user:word@host:1/metrics")
