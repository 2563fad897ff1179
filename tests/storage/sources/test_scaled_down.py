"""Targets come and go: one that Prometheus scrapes no more counts as neither running nor down."""

from __future__ import annotations

import pytest

from storage.sources.gathered import DOWN, GatheredSource, GatheredStore, newest_up, watched_for_s
from storage.sources.matrix import Matrix, Vector
from storage.sources.promclient import PrometheusClient
from storage.sources.promtargets import PromTargets

NOW_S = 1_000.0
WAITING = "vllm:num_requests_waiting"


def times(first_s: float, last_s: float, step_s: float, value: float) -> list[tuple[float, float]]:
    count = round((last_s - first_s) / step_s)
    return [(first_s + step_s * i, value) for i in range(count + 1)]


def source_of(
    up: dict[str, list[tuple[float, float]]], waiting: dict[str, float], job: str = "vllm"
) -> GatheredSource:
    """Each target's `up`, and what waits on those that are engines, wherever they answered."""
    others = [({"__name__": "up", "job": job, "instance": n}, ups) for n, ups in up.items()]
    own = [
        (
            {"__name__": WAITING, "job": job, "instance": name},
            [(at_s, value) for at_s, answers in up[name] if answers],
        )
        for name, value in waiting.items()
    ]
    return GatheredSource(GatheredStore(own, others), NOW_S, 5.0)


def test_a_target_taken_out_no_longer_counts() -> None:
    up = {"a:1": times(500, 999, 5, 1), "b:1": times(500, 900, 5, 1)}
    source = source_of(up, {"a:1": 3, "b:1": 5})
    assert source.gauge(WAITING, agg="sum").value == 3
    assert list(source.breakdown(WAITING, "instance")) == ["a:1"]
    asked = source.range("gauge", WAITING, start_s=905, end_s=945, step_s=20, agg="sum")
    assert [value for _, value in asked] == [8, 3, 3]
    assert source.status().targets == ()


def test_what_only_it_exported_is_exported_no_more() -> None:
    up = {"a:1": times(500, 999, 5, 1), "b:1": times(500, 900, 5, 1)}
    others = [({"__name__": "up", "job": "vllm", "instance": n}, ups) for n, ups in up.items()]
    own = [
        ({"__name__": f"vllm:{name[0]}", "job": "vllm", "instance": name}, ups)
        for name, ups in up.items()
    ]
    assert GatheredStore(own, others).names() == {"vllm:a"}


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param(times(500, 980, 30, 1), id="it is scraped every 30 s"),
        pytest.param([(950.0, 1.0)], id="it came just now, at a pace not known yet"),
    ],
)
def test_a_target_that_is_scraped_less_often_counts(slow: list[tuple[float, float]]) -> None:
    up = {"a:1": times(500, 999, 5, 1), "b:1": slow, "c:1": times(400, 970, 30, 1)}
    source = source_of(up, {"a:1": 3, "b:1": 5})
    assert source.gauge(WAITING, agg="sum").value == 8


class Asked(PrometheusClient):
    """Tells `up` of two engines."""

    def __init__(self, up: dict[str, list[tuple[float, float]]]) -> None:
        super().__init__("http://127.0.0.1:9")
        self._up = up

    def matrix(self, selected: str, window_s: float, now_s: float) -> Matrix:
        return [({"job": "vllm", "instance": name}, points) for name, points in self._up.items()]

    def vector(self, query: str, now_s: float | None = None) -> Vector:
        return []


def test_an_old_answer_of_a_target_taken_out_hides_no_silence() -> None:
    up = {"gone:1": times(500, 900, 5, 1), "a:1": [*times(500, 980, 5, 1), (985, 0), (990, 0)]}
    assert newest_up(up.values())[-1] == (990, 0)
    looked = source_of(up, {"gone:1": 1, "a:1": 1}).status()
    asked = PromTargets(Asked(up), {}).status(NOW_S, 5.0, 60.0)
    for status in (looked, asked):
        assert (status.up, status.reason) == (False, DOWN)
        assert status.age_s == pytest.approx(10)


def test_watched_as_long_as_the_longest_of_them() -> None:
    up = {"new:1": times(979, 999, 5, 1), "old:1": times(898, 998, 5, 1)}
    looked = source_of(up, {"new:1": 1, "old:1": 1}).status()
    asked = PromTargets(Asked(up), {}).status(NOW_S, 5.0, 60.0)
    for status in (looked, asked):
        assert status.watched_s == pytest.approx(102)
    up["always:1"] = times(100, 1000, 5, 1)
    assert watched_for_s(up.values(), NOW_S, 5.0) is None


def test_silent_targets_of_a_job_of_all_sorts_need_not_be_engines() -> None:
    silent = [*times(500, 900, 5, 1), *times(905, 995, 5, 0)]
    up = {"a:1": times(500, 999, 5, 1), "b:1": silent, "dead:1": times(500, 995, 5, 0)}
    assert dict(source_of(up, {"a:1": 3, "b:1": 5}).status().targets) == {
        "a:1": "", "b:1": DOWN, "dead:1": DOWN
    }  # fmt: skip
    up["web:1"] = times(500, 999, 5, 1)
    assert dict(source_of(up, {"a:1": 3, "b:1": 5}).status().targets) == {"a:1": "", "b:1": DOWN}


def test_a_federated_target_is_there_as_long_as_any_of_its_series() -> None:
    """It has no `up` of its own, and the first series of it ended."""
    own = [
        ({"__name__": name, "job": "vllm", "instance": "a:1", "model_name": model}, points)
        for name, model, points in (
            (WAITING, "gone", times(500, 700, 5, 7)), (WAITING, "m", times(500, 995, 5, 3)),
        )
    ]  # fmt: skip
    up = [({"__name__": "up", "job": "prometheus", "instance": "p"}, times(500, 999, 5, 1))]
    source = GatheredSource(GatheredStore(own, up), NOW_S, 5.0)
    assert source.gauge(WAITING, agg="sum").value == 3
