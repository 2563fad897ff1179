"""The Prometheus adapter's fences: every fault of server or library is an outcome with a reason."""

from __future__ import annotations

import json
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from storage.sources import promclient, promql
from storage.sources.base import Outcome, Reading
from storage.sources.matrix import Matrix
from storage.sources.prometheus import PrometheusSource
from storage.sources.promtargets import PromTargets
from tests.storage.conftest import free_port
from tests.storage.sources.serving import Serving, serving


def ask_everything(url: str) -> list[Reading]:
    source = PrometheusSource(url)
    try:
        assert source.names() == frozenset()
        assert source.info("a") is None
        assert source.breakdown("a", "b") == {}
        points = source.range("rate", "a", start_s=0, end_s=10, step_s=5)
        assert [value for _, value in points] == [None, None, None]
        assert not source.status().up
        assert source.status().reason
        return [
            source.gauge("a"),
            source.rate("a", 60),
            source.increase("a", 60),
            source.mean("a", 60),
            source.quantile("a", 0.5, 60),
        ]
    finally:
        source.close()


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, "<html></html>", "not a Prometheus server"),
        (200, "[]", "not a Prometheus server"),
        (200, "[" * 200_000, "not a Prometheus server"),
        (400, "[" * 200_000, "[[["),
        (200, '{"status":"success"}', "not a Prometheus server"),
        (200, '{"data":{"result":[{"metric":{}}]}}', "unknown form"),
        (200, '{"data":{"result":[{"metric":{},"value":[1,"x"],"values":[[1]]}]}}', "unknown form"),
        (422, '{"status":"error","error":"too many samples"}', "too many samples"),
        (404, "nothing here", "404"),
        (503, "starting", "server errors"),
    ],
)
def test_a_server_that_answers_nonsense(status: int, body: str, why: str) -> None:
    with serving(body) as server:
        server.status = status
        for reading in ask_everything(server.url):
            assert reading.outcome is Outcome.UNREACHABLE
            assert why in reading.reason


def test_a_server_that_is_not_there() -> None:
    for reading in ask_everything(f"http://127.0.0.1:{free_port()}"):
        assert reading.outcome is Outcome.UNREACHABLE
        assert "no Prometheus answers" in reading.reason


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promclient, "TIMEOUT_S", 0.2)
    with serving() as server:
        server.write = lambda handler: time.sleep(0.8)
        source = PrometheusSource(server.url)
        reading = source.gauge("a")
        assert server.asked == 2  # one retry
        source.close()
    assert reading.outcome is Outcome.UNREACHABLE
    assert "no answer in 0.2 s" in reading.reason


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:x"])
def test_no_address(url: str) -> None:
    for reading in ask_everything(url):
        assert reading.outcome is Outcome.UNREACHABLE
        assert "not an address" in reading.reason


def recorded(server: Serving) -> list[tuple[str, dict[str, list[str]]]]:
    asked: list[tuple[str, dict[str, list[str]]]] = []

    def write(handler: object) -> None:
        parts = urlsplit(handler.path)  # type: ignore[attr-defined]
        asked.append((parts.path, parse_qs(parts.query)))
        body = json.dumps({"status": "success", "data": {"result": []}}).encode()
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.send_header("Content-Length", str(len(body)))  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]
        handler.wfile.write(body)  # type: ignore[attr-defined]

    server.write = write  # type: ignore[assignment]
    return asked


def test_every_query_carries_its_time() -> None:
    with serving() as server:
        asked = recorded(server)
        source = PrometheusSource(server.url)
        before_s = time.time()
        source.rate("a", 60)
        time.sleep(0.05)
        source.rate("a", 60)
        times_s = [float(query["time"][0]) for path, query in asked if path.endswith("/query")]
        source.close()
    assert len(times_s) >= 2
    assert before_s - 0.01 <= times_s[0] < times_s[-1]


def test_ranges_keep_their_fractions_of_a_second() -> None:
    with serving() as server:
        asked = recorded(server)
        source = PrometheusSource(server.url)
        source.range("gauge", "a", start_s=10.25, end_s=20.75, step_s=0.5)
        source.close()
    query = next(query for path, query in asked if path.endswith("/query_range"))
    assert (query["start"], query["end"], query["step"]) == (["10.250"], ["20.750"], ["0.500"])


def test_label_values_are_escaped() -> None:
    wanted = {"m": 'a"b\\c\nd', "n": "x"}
    assert promql.selector("a", wanted, 60) == 'a{m="a\\"b\\\\c\\nd",n="x"}[60s]'
    assert promql.selector("a", {}, 0.25) == "a[250ms]"


def test_a_target_scraped_just_now_was_watched_for_no_less_than_nothing() -> None:
    """The times of a range are rounded: its last step may lie a moment after now."""

    class JustNow(promclient.PrometheusClient):
        def series(self, query: str, start_s: float, end_s: float, step_s: float) -> Matrix:
            return [({"job": "a", "instance": "b"}, [(end_s + 0.0005, 1.0)])]

        def matrix(self, selected: str, window_s: float, now_s: float) -> Matrix:
            return [({"job": "a", "instance": "b"}, [(now_s, 1.0)])]

        def vector(self, query: str, now_s: float | None = None) -> promclient.Vector:
            return []

    targets = PromTargets(JustNow("http://127.0.0.1:9"), {})
    for reach_s in (3600.0, 86_400.0, 30 * 86_400.0):
        assert targets.status(1_800_000_000.0, 5.0, reach_s).watched_s == 0.0


def test_which_targets_are_engines_is_asked_every_fifteen_seconds_at_most() -> None:
    asked: list[float | None] = []

    class Counting(promclient.PrometheusClient):
        def vector(self, query: str, now_s: float | None = None) -> promclient.Vector:
            asked.append(now_s)
            return [({"job": "a", "instance": "b"}, 1.0)]

    targets = PromTargets(Counting("http://127.0.0.1:9"), {})
    at_s = 1_800_000_000.0
    for later_s in (0.0, 5.0, 14.9, 15.1, 20.0, 0.0):  # a clock that was put back asks anew
        assert targets.found(at_s + later_s) == {("a", "b")}
    assert asked == [at_s, at_s + 15.1, at_s]
