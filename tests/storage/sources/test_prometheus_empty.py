"""A Prometheus that answers with nothing: each question has its outcome with a reason, and the tree
says that it judges nothing. No figure, no zero, no exception of the library."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from storage.sources.base import Outcome, Reading, Wanted
from storage.sources.prometheus import PrometheusSource
from tests.storage.sources.serving import serving
from tuner.diagnosis import State, collect, diagnose

TARGET = {"job": "engine", "instance": "a:8000"}
QUESTIONS: dict[str, Callable[[PrometheusSource], Reading]] = {
    "gauge": lambda source: source.gauge("a"),
    "rate": lambda source: source.rate("a", 60),
    "increase": lambda source: source.increase("a", 60),
    "mean": lambda source: source.mean("a", 60),
    "quantile": lambda source: source.quantile("a", 0.5, 60),
}


def result(query: str, up: float | None, seen_s: float | None) -> list[dict[str, Any]]:
    """up: of the one target, None where none is scraped; seen_s: how long ago a series had its only
    sample, None where there is none."""
    now_s = time.time()
    if query.startswith("up"):
        at_s, value = now_s, up
    else:
        raw = "(" not in query
        at_s, value = now_s - (seen_s or 0.0), 1.0 if raw and seen_s is not None else None
    if value is None:
        return []
    point = [at_s, str(value)]
    kind: dict[str, Any] = {"values": [point]} if "[" in query else {"value": point}
    return [{"metric": TARGET, **kind}]


@contextmanager
def answering(up: float | None = None, seen_s: float | None = None) -> Iterator[PrometheusSource]:
    def write(handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = parse_qs(parts.query).get("query", [""])[0]
        labels = "/label/" in parts.path
        data = [] if labels else {"resultType": "vector", "result": result(query, up, seen_s)}
        body = json.dumps({"status": "success", "data": data}).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with serving() as server:
        server.write = write
        source = PrometheusSource(server.url)
        try:
            yield source
        finally:
            source.close()


@pytest.mark.parametrize("asked", QUESTIONS)
@pytest.mark.parametrize(
    ("up", "seen_s", "outcome", "why"),
    [
        (None, None, Outcome.NO_DATA, "is not exported"),
        (1.0, None, Outcome.NO_DATA, "is not exported"),
        (0.0, None, Outcome.UNREACHABLE, "cannot scrape the target"),
        (1.0, 400.0, Outcome.STALE, "s old"),
    ],
)
def test_an_empty_answer_is_looked_into(
    asked: str, up: float | None, seen_s: float | None, outcome: Outcome, why: str
) -> None:
    with answering(up, seen_s) as source:
        reading = QUESTIONS[asked](source)
    assert (reading.outcome, reading.value) == (outcome, None)
    assert why in reading.reason


def test_one_sample_makes_no_growth_yet() -> None:
    with answering(1.0, seen_s=1.0) as source:
        reading = source.increase("a", 60)
    assert (reading.outcome, reading.samples) == (Outcome.NO_DATA, 1)
    assert "fewer than two samples" in reading.reason


def test_what_is_asked_as_tables_is_empty_too() -> None:
    with answering() as source:
        assert source.names() == frozenset()
        assert source.info("a") is None
        assert source.breakdown("a", "b") == {}
        points = source.range("gauge", "a", start_s=0, end_s=10, step_s=5)
        assert points == [(0.0, None), (5.0, None), (10.0, None)]
        assert source.status().reason == "Prometheus scrapes no such target"
        gathered = source.at_once(Wanted(frozenset({"a"}), 60.0, frozenset(), 60.0))
        assert gathered.gauge("a").outcome is Outcome.UNREACHABLE
        assert "scrapes no such target" in gathered.gauge("a").reason


def test_the_tree_judges_nothing_by_it() -> None:
    with answering() as source:
        found = diagnose(collect(source, window_s=60.0))
    assert [cause.key for cause in found.causes] == ["0"]
    assert "scrapes no such target" in found.node("0").summary
    assert {node.state for node in found.nodes[1:]} == {State.CANT_TELL}
