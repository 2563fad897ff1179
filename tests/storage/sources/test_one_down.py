"""One of two targets is down and was asked last: the other one's figures are none the worse."""

from __future__ import annotations

import pytest

from storage.sources.gathered import GatheredSource, GatheredStore
from storage.sources.promclient import PrometheusClient, Vector
from storage.sources.promtargets import PromTargets

NOW_S = 1_000.0
ALIVE = [(NOW_S - 100.0 + 5 * i, 1.0) for i in range(20)]
DEAD = [(at_s + 2.0, float(at_s < NOW_S - 50)) for at_s, _ in ALIVE]
UP = [
    ({"__name__": "up", "job": "vllm", "instance": name}, points)
    for name, points in (("a:8000", ALIVE), ("b:8000", DEAD))
]


class Answers(PrometheusClient):
    """Asked for `up` of both."""

    def matrix(
        self, selected: str, window_s: float, now_s: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        return UP

    def vector(self, query: str, now_s: float | None = None) -> Vector:
        return []


def test_prometheus_says_that_the_target_is_up_and_since_when() -> None:
    status = PromTargets(Answers("http://127.0.0.1:9"), {}).status(NOW_S, 5.0, 60.0)
    assert (status.up, status.reason) == (True, "")
    assert status.watched_s == pytest.approx(100.0)


def test_one_look_covers_what_was_watched_of_the_one_that_answers() -> None:
    running = [
        ({**labels, "__name__": "vllm:num_requests_running"}, [p for p in points if p[1]])
        for labels, points in UP
    ]
    status = GatheredSource(GatheredStore(running, UP), NOW_S, 5.0).status()
    assert status.up
    assert status.watched_s == pytest.approx(100.0)
    assert dict(status.targets)["a:8000"] == ""
    assert dict(status.targets)["b:8000"]
