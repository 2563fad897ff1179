"""The embedded scraper against servers that behave, misbehave, vanish and come back."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler
from itertools import count

import pytest

from storage import StorageError
from storage.sources import fetch, open_source, scrape_once
from storage.sources.base import Outcome
from storage.sources.fetch import metrics_url
from storage.sources.scrape import ScrapeSource
from storage.sources.store import SeriesStore
from tests.storage.conftest import free_port, wait_until
from tests.storage.sources.serving import serving


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://a:8000", "http://a:8000/metrics"),
        ("http://a:8000/", "http://a:8000/metrics"),
        ("http://a:8000/v1", "http://a:8000/metrics"),
        ("http://a:8000/v1/", "http://a:8000/metrics"),
        ("http://a:8000/metrics", "http://a:8000/metrics"),
        ("https://a/engine", "https://a/engine/metrics"),
        ("a:8000", "http://a:8000/metrics"),
        (" http://[::1]:8000 ", "http://[::1]:8000/metrics"),
    ],
)
def test_the_address_of_metrics(given: str, asked: str) -> None:
    assert metrics_url(given) == asked


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:x", "file:///etc/passwd"])
def test_no_address_is_unreachable_with_a_reason(url: str) -> None:
    with pytest.raises(StorageError, match="is not an address"):
        scrape_once(url)
    source = ScrapeSource(url)
    try:
        reading = source.gauge("a")
        assert reading.outcome is Outcome.UNREACHABLE
        assert "not an address" in reading.reason
        assert not source.status().up
    finally:
        source.close()


def refusal(url: str) -> fetch.FetchError:
    with pytest.raises(fetch.FetchError) as caught:
        scrape_once(url)
    return caught.value


def test_a_refused_connection() -> None:
    found = refusal(f"http://127.0.0.1:{free_port()}")
    assert found.outcome is Outcome.UNREACHABLE
    assert "connection refused" in str(found)


def test_an_unknown_host() -> None:
    assert refusal("http://nowhere.invalid").outcome is Outcome.UNREACHABLE


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, "<!DOCTYPE html><html></html>", Outcome.NO_DATA),
        (200, '{"error": "not here"}', Outcome.NO_DATA),
        (200, "hello there, world", Outcome.NO_DATA),
        (404, "no", Outcome.NO_DATA),
        (401, "no", Outcome.NO_DATA),
        (500, "no", Outcome.UNREACHABLE),
        (503, "no", Outcome.UNREACHABLE),
    ],
)
def test_an_answer_that_holds_no_metrics(status: int, body: str, outcome: Outcome) -> None:
    with serving(body) as server:
        server.status = status
        found = refusal(server.url)
    assert found.outcome is outcome
    assert server.url in str(found)


def test_a_giant_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 2**20)
    with serving("a 1\n" * 600_000) as server:
        found = refusal(server.url)
    assert found.outcome is Outcome.NO_DATA
    assert "more than 1 MiB" in str(found)


def test_an_answer_of_more_series_than_can_be_kept_up_with_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "MAX_SERIES", 2)
    with serving("a 1\nb 1\n") as server:
        assert scrape_once(server.url).values == {"a": 1, "b": 1}
    with serving('a{b="1"} 1\na{b="2"} 1\nb 1\n') as server:
        found = refusal(server.url)
    assert found.outcome is Outcome.NO_DATA
    assert "exports 3 series; at most 2 are read" in str(found)


def test_an_answer_that_drips_is_given_up() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b"a 1\n")
                time.sleep(0.1)
        except OSError:
            pass

    with serving() as server:
        server.write = drip
        with pytest.raises(fetch.FetchError, match="in time"):
            scrape_once(server.url, timeout_s=0.4)


def test_a_broken_answer_is_unreachable() -> None:
    def break_off(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"a 1\n")

    with serving() as server:
        server.write = break_off
        assert refusal(server.url).outcome is Outcome.UNREACHABLE


def test_live_metrics_and_the_end_of_the_server() -> None:
    ticks = count(0, 5)
    with serving(lambda: f"c_total {next(ticks)}\ng 7\n") as server:
        source = open_source(url=server.url, scrape_interval_s=0.1)
        assert source.gauge("g").value == 7  # waits for the first scrape
        assert source.status().up
        wait_until(lambda: source.rate("c_total", 1).samples >= 4, "a few scrapes")
        assert source.rate("c_total", 1).value > 0
        assert source.rate("c_total", 0.05).window_s == pytest.approx(0.4)  # four intervals
        wait_until(lambda: server.asked > 5, "scrapes")
    wait_until(lambda: not source.status().up, "the scraper to notice")
    gone = source.gauge("g")
    assert gone.outcome is Outcome.UNREACHABLE
    assert "connection refused" in gone.reason
    source.close()
    assert not source._thread.is_alive()


def test_a_server_that_comes_back_is_found_again() -> None:
    port = free_port()
    source = ScrapeSource(f"http://127.0.0.1:{port}", scrape_interval_s=0.1)
    assert source.gauge("g").outcome is Outcome.UNREACHABLE
    with serving("g 1\n", port=port):
        wait_until(lambda: source.gauge("g").ok, "the server to be found")
    source.close()


def test_prometheus_own_labels_do_not_hide_a_target() -> None:
    with serving("g 1\n") as server:
        source = open_source(url=server.url, labels={"job": "x", "instance": "y"})
        assert source.gauge("g").ok
        source.close()


def test_one_target_must_be_given() -> None:
    with pytest.raises(StorageError, match="not both or neither"):
        open_source()
    with pytest.raises(StorageError, match="not both or neither"):
        open_source(url="http://a", prometheus="http://b")


def test_memory_is_bounded_by_the_horizon() -> None:
    from storage.sources import parse_exposition

    store = SeriesStore(horizon_s=100)
    for at_s in range(1000):
        text = f'g 1\nold{{run="{at_s // 200}"}} 1\n'
        store.add(parse_exposition(text, float(at_s)))
    (series,) = store.find("g")
    assert len(series.times_s) <= 100 + 32 + 1
    assert len(store.find("old")) <= 2
    assert len(store.attempts_s) <= 133


def test_a_clock_that_goes_back_does_not_disorder_a_series() -> None:
    from storage.sources import parse_exposition

    store = SeriesStore()
    for at_s in (10.0, 5.0, 11.0):
        store.add(parse_exposition("g 1\n", at_s))
    assert list(store.find("g")[0].times_s) == [10.0, 11.0]
