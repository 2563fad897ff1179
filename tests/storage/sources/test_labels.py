"""Labels narrow what carries them: what a process tells once and devices are found all the same."""

from __future__ import annotations

import re
import time

import pytest

from storage.sources.base import Labels, Outcome, Wanted
from storage.sources.exposition import STARTED
from storage.sources.matrix import Matrix, Vector
from storage.sources.promclient import PrometheusClient
from storage.sources.prometheus import PrometheusSource

RUNNING = "vllm:num_requests_running"
POOL = "vllm:cache_config_info"
DEVICE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
WANTED = Wanted(frozenset({RUNNING, POOL, STARTED}), 60.0)


def series(name: str, job: str, instance: str, value: float, **labels: str) -> dict[str, str]:
    return {"__name__": name, "job": job, "instance": instance, "v": str(value), **labels}


HELD = [
    *(series("up", "vllm", f"{host}:8000", 1.0) for host in "ab"),
    series("up", "node", "c:9100", 1.0),
    series("up", "dcgm", "a:9400", 1.0),
    series(RUNNING, "vllm", "a:8000", 3.0, model_name="m"),
    series(RUNNING, "vllm", "b:8000", 5.0, model_name="n"),
    series(POOL, "vllm", "b:8000", 1.0, num_gpu_blocks="20"),
    series(POOL, "vllm", "a:8000", 1.0, num_gpu_blocks="10"),
    series(STARTED, "vllm", "a:8000", 100.0),
    series(STARTED, "vllm", "b:8000", 200.0),
    series(STARTED, "node", "c:9100", 900.0),
    series(DEVICE, "dcgm", "a:9400", 0.7, gpu="0"),
]


class Holding(PrometheusClient):
    """Knows of PromQL the matchers, and aggregations over nothing but each target's own series."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")
        self.asked = 0

    def _found(self, query: str) -> list[tuple[dict[str, str], float]]:
        self.asked += 1
        given = dict(re.findall(r'(\w+)="([^"]*)"', query))
        pattern = re.search(r'__name__=~"([^"]*)"', query)
        plain = re.search(rf"up\\b|{STARTED}|{POOL}", query)
        names = pattern[1] if pattern else plain[0] if plain else ""
        return [
            ({key: text for key, text in one.items() if key != "v"}, float(one["v"]))
            for one in HELD
            if re.fullmatch(names, one["__name__"]) and given.items() <= one.items()
        ]

    def matrix(self, selected: str, window_s: float, now_s: float) -> Matrix:
        times_s = [now_s - 60.0 + 5.0 * i for i in range(12)]
        return [(labels, [(at_s, v) for at_s in times_s]) for labels, v in self._found(selected)]

    def vector(self, query: str, now_s: float | None = None) -> Vector:
        return self._found(query)


def source_of(labels: Labels) -> tuple[PrometheusSource, Holding]:
    source = PrometheusSource("http://127.0.0.1:9", labels=labels)
    client = Holding()
    source.client = source._targets.client = client
    return source, client


def test_a_models_label_leaves_what_its_process_tells() -> None:
    source, client = source_of({"model_name": "m"})
    look = source.at_once(WANTED)
    assert client.asked == 3
    assert look.gauge(RUNNING, agg="sum").value == 3
    assert (look.info(POOL) or {})["num_gpu_blocks"] == "10"
    assert look.gauge(STARTED).value == 100
    assert look.status().process_start_s == 100
    assert (source.info(POOL) or {})["num_gpu_blocks"] == "10"
    assert source.status().process_start_s == 100


def test_a_label_of_the_targets_costs_no_more_requests() -> None:
    source, client = source_of({"job": "vllm"})
    look = source.at_once(WANTED)
    assert client.asked == 2
    assert look.gauge(RUNNING, agg="sum").value == 8
    assert source.info(POOL, {"instance": "b:8000"}) == {"num_gpu_blocks": "20"}
    assert source.info(POOL, {"instance": "c:9100"}) is None


def test_the_newest_start_is_of_an_engine() -> None:
    source, _ = source_of({})
    assert source.status().process_start_s == 200


@pytest.mark.parametrize("labels", [{}, {"job": "vllm"}, {"model_name": "m"}])
def test_devices_of_the_engines_hosts_are_found(labels: Labels) -> None:
    source, _ = source_of(labels)
    look = source.at_once(WANTED)
    assert look.gauge(DEVICE).value == 0.7
    assert look.gauge(DEVICE, {"gpu": "0"}).value == 0.7
    assert look.gauge(DEVICE, {"gpu": "1"}).outcome is Outcome.NO_DATA
    assert list(look.breakdown(DEVICE, "gpu")) == ["0"]
    now_s = time.time()
    [(_, value)] = look.range("gauge", DEVICE, start_s=now_s, end_s=now_s, step_s=1.0)
    assert value == 0.7


def test_other_hosts_devices_are_not() -> None:
    source, _ = source_of({"model_name": "n"})
    assert source.at_once(WANTED).gauge(DEVICE).outcome is Outcome.NO_DATA
