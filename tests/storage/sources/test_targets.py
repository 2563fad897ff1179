"""Several targets scraped as one source: figures of all, told apart, and a dead one named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from storage.errors import StorageError
from storage.sources import open_source
from storage.sources.base import MetricSource, Outcome
from storage.sources.gathered import GatheredSource, GatheredStore
from storage.sources.scrape import ScrapeSource
from storage.sources.targets import ScrapedTargets, instance_of, instances
from tests.storage.conftest import wait_until
from tests.storage.sources.serving import Serving, serving

RUNNING = "vllm:num_requests_running"
INTERVAL_S = 0.1
NOBODY = "http://127.0.0.1:9"


def page(running: int, began_s: float) -> str:
    tokens = 100 * running * (time.time() - began_s)
    return (
        f'{RUNNING}{{engine="0"}} {running}\n'
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}\n'
        'vllm:cache_config_info{block_size="16"} 1\n'
    )


@pytest.fixture
def servers() -> Iterator[list[Serving]]:
    """Two engines: 3 run on the first, 5 on the second."""
    began_s = time.time()
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(lambda running=running: page(running, began_s)))
            for running in (3, 5)
        ]


@pytest.fixture
def opened() -> Iterator[Callable[..., MetricSource]]:
    sources: list[MetricSource] = []

    def start(*urls: str) -> MetricSource:
        sources.append(open_source(url=urls, scrape_interval_s=INTERVAL_S))
        return sources[-1]

    yield start
    for source in sources:
        source.close()


def scraped(source: MetricSource, times: int) -> None:
    reading = lambda: source.increase("vllm:generation_tokens_total", 60.0)  # noqa: E731
    wait_until(lambda: reading().samples >= times, f"{times} scrapes")


def test_figures_are_of_all_and_told_apart(
    servers: list[Serving], opened: Callable[..., MetricSource]
) -> None:
    source = opened(*(server.url for server in servers))
    scraped(source, 5)
    assert source.gauge(RUNNING, agg="sum").value == 8
    assert source.gauge(RUNNING).value == 5
    first, second = (instance_of(server.url) for server in servers)
    parts = {name: part.value for name, part in source.breakdown(RUNNING, "instance").items()}
    assert parts == {first: 3, second: 5}
    assert source.gauge(RUNNING, {"instance": first}).value == 3
    grown = source.breakdown("vllm:generation_tokens_total", "instance", 60.0)
    assert (grown[second].value or 0) / (grown[first].value or 1) == pytest.approx(5 / 3, rel=0.25)
    total = sum(part.value or 0.0 for part in grown.values())
    assert source.increase("vllm:generation_tokens_total", 60.0).value == pytest.approx(total, 0.25)
    assert RUNNING in source.names()
    assert (source.info("vllm:cache_config_info") or {})["block_size"] == "16"
    now_s = time.time()
    points = source.range("gauge", RUNNING, start_s=now_s, end_s=now_s, step_s=1.0,
                          agg="sum")  # fmt: skip
    assert [value for _, value in points] == [8]
    assert dict(source.status().targets) == {first: "", second: ""}
    assert source.status().up


def test_a_target_that_never_answered_is_named(
    servers: list[Serving], opened: Callable[..., MetricSource]
) -> None:
    source = opened(servers[0].url, NOBODY)
    scraped(source, 2)
    status = source.status()
    assert status.up
    told = dict(status.targets)
    assert told[instance_of(servers[0].url)] == ""
    assert "connection refused" in told["127.0.0.1:9"]
    assert source.gauge(RUNNING, agg="sum").value == 3


def test_a_target_that_dies_takes_its_figures_along(
    servers: list[Serving], opened: Callable[..., MetricSource]
) -> None:
    source = opened(*(server.url for server in servers))
    scraped(source, 3)
    servers[1].status = 500
    wait_until(lambda: bool(dict(source.status().targets)[instance_of(servers[1].url)]), "its end")
    assert source.gauge(RUNNING, agg="sum").value == 3
    servers[1].status = 200
    wait_until(lambda: source.gauge(RUNNING, agg="sum").value == 8, "its return")
    assert all(not why for _, why in source.status().targets)


def test_all_of_them_dead_is_unreachable(opened: Callable[..., MetricSource]) -> None:
    source = opened(NOBODY, "http://127.0.0.1:19")
    status = source.status()
    assert not status.up
    assert "127.0.0.1:9: " in status.reason
    assert "127.0.0.1:19: " in status.reason
    assert source.gauge(RUNNING).outcome is Outcome.UNREACHABLE


def test_pages_without_an_engine(opened: Callable[..., MetricSource]) -> None:
    with serving("up 1\n") as one, serving("up 1\n") as other:
        status = opened(one.url, other.url).status()
        assert not status.up
        assert "none exports an engine's metrics" in status.reason


def test_a_device_exporter_beside_an_engine(opened: Callable[..., MetricSource]) -> None:
    device = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0"} 0.7\n'
    with serving(f'{RUNNING}{{engine="0",instance="inner"}} 2\n') as engine, serving(device) as gpu:
        source = opened(engine.url, gpu.url)
        wait_until(lambda: source.gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE").ok, "both pages")
        assert source.gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE").value == 0.7
        assert list(source.breakdown(RUNNING, "exported_instance")) == ["inner"]
        assert source.status().targets == ()  # an exporter that answers is no engine


def test_the_same_target_twice_is_refused() -> None:
    with pytest.raises(StorageError, match="is given twice"):
        ScrapedTargets([NOBODY, f"{NOBODY}/metrics"])
    with pytest.raises(StorageError, match="is not an address"):
        ScrapedTargets([NOBODY, "nonsense:port"])


def test_targets_behind_one_address_are_told_apart_by_their_paths() -> None:
    urls = ["http://gw/a/v1", "http://gw/b/metrics", "http://other:8000/c"]
    assert instances(urls) == ["gw/a", "gw/b", "other:8000"]
    assert instances(["http://gw", "http://gw/a", "http://gw/metrics?of=b"]) == [
        "gw", "gw/a", "gw?of=b"
    ]  # fmt: skip
    with pytest.raises(StorageError, match=r"^gw/a is given twice"):
        instances(["http://gw/a", "http://gw/a/metrics", "http://gw/b"])


def test_a_dead_target_is_named_whatever_its_series_would_carry(servers: list[Serving]) -> None:
    servers[0].answer = f'{RUNNING}{{engine="0",model_name="m"}} 3\n'
    labels = {"model_name": "m"}
    source = open_source(url=[servers[0].url, NOBODY], scrape_interval_s=0.1, labels=labels)
    try:
        wait_until(lambda: source.gauge(RUNNING).ok, "the first scrape")
        told = dict(source.status().targets)
    finally:
        source.close()
    assert told[instance_of(servers[0].url)] == ""
    assert "connection refused" in told["127.0.0.1:9"]


def test_only_what_is_asked_for_is_copied() -> None:
    names = (RUNNING, "python_info", "process_start_time_seconds", "DCGM_FI_DEV_GPU_TEMP")
    with serving("".join(f"{name} 1\n" for name in names)) as server:
        scrape = ScrapeSource(server.url, scrape_interval_s=60.0)
        try:
            told = {labels["__name__"] for labels, _ in scrape.held("vllm:", "DCGM_")[0]}
            assert told == {RUNNING, "DCGM_FI_DEV_GPU_TEMP"}
            assert {labels["__name__"] for labels, _ in scrape.held()[0]} == set(names)
        finally:
            scrape.close()


def up(*values: float) -> list[tuple[float, float]]:
    return [(100.0 + 5.0 * i, value) for i, value in enumerate(values)]


def told_by_prometheus(**labels: str) -> dict[str, str]:
    """Of two engines of one job, a third that never answered, one that is gone, another job."""
    engine = [
        ({"__name__": RUNNING, "job": "vllm", "instance": name}, points)
        for name, points in (("a", up(1, 1, 1, 1, 1)), ("b", up(1, 1)))
    ]
    answers = {
        ("vllm", "a"): up(1, 1, 1, 1, 1), ("vllm", "b"): up(1, 1, 0, 0, 0),
        ("vllm", "never"): up(0, 0, 0, 0, 0), ("vllm", "gone"): up(0),
        ("node", "c"): up(0, 0, 0, 0, 0),
    }  # fmt: skip
    others = [
        ({"__name__": "up", "job": job, "instance": instance}, points)
        for (job, instance), points in answers.items()
    ]
    own = [(found, points) for found, points in engine if found.items() >= labels.items()]
    source = GatheredSource(GatheredStore(own, others), 121.0, 5.0, labels)
    return {name: "down" if why else "" for name, why in source.status().targets}


def test_a_prometheus_tells_which_of_its_targets_are_down() -> None:
    all_of_them = {"a": "", "b": "down", "never": "down"}
    assert told_by_prometheus() == all_of_them
    assert told_by_prometheus(job="vllm") == all_of_them
    assert told_by_prometheus(instance="a") == {}


def test_an_engine_that_has_served_nothing_is_a_target() -> None:
    """vLLM's V0 engine exports its settings and the rest from the first request on; of labels that
    tell models apart they prove nothing."""
    target = {"job": "vllm", "instance": "a"}
    own = [({"__name__": "vllm:cache_config_info", **target}, up(1, 1, 1, 1, 1))]
    others = [({"__name__": "up", **target}, up(1, 1, 1, 1, 1))]
    status = GatheredSource(GatheredStore(own, others), 121.0, 5.0).status()
    assert (status.up, status.reason) == (True, "")
    named = GatheredSource(GatheredStore(own, others, by_model=True), 121.0, 5.0)
    assert named.status().reason == "Prometheus scrapes no such target"


def test_all_of_them_ended_is_told_with_each_ones_reason(
    servers: list[Serving], opened: Callable[..., MetricSource]
) -> None:
    source = opened(*(server.url for server in servers))
    scraped(source, 3)
    for server in servers:
        server.status = 500
    wait_until(lambda: not source.status().up, "their end")
    assert source.status().reason.count("500") == 2
