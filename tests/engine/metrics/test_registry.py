"""The exposition's form, and that it is vLLM's where a name is shared."""

from pathlib import Path

import pytest

from engine.metrics.buckets import length_buckets
from engine.metrics.cells import label_text
from engine.metrics.http import HttpMetrics
from engine.metrics.names import (
    OWN_METRICS,
    VLLM_METRICS,
    VLLM_OPTIONAL_METRICS,
    MetricSpec,
)
from engine.metrics.registry import MetricRegistry
from tests.engine.metrics.exposition import Page, read

VLLM = read((Path(__file__).parent / "data" / "vllm-0.32.txt").read_text())


ALL = VLLM_METRICS + VLLM_OPTIONAL_METRICS + OWN_METRICS


def new_registry() -> MetricRegistry:
    registry = MetricRegistry(model_name="smollm2", max_model_len=1024)
    registry.declare(ALL)
    return registry


def idle_page() -> Page:
    return read(new_registry().exposition().decode())


@pytest.mark.parametrize("spec", VLLM_METRICS, ids=lambda spec: spec.name)
def test_shared_metric_has_vllms_type_labels_and_buckets(spec: MetricSpec) -> None:
    ours, name = idle_page(), spec.name
    assert ours.types[name] == VLLM.types[name]
    shared = [n for n in ours.label_names if n.startswith(name) and n in VLLM.label_names]
    assert shared
    for sample in shared:
        assert ours.label_names[sample] == VLLM.label_names[sample], sample
        extra = spec.label
        if extra:
            assert ours.label_values[sample, extra] == VLLM.label_values[sample, extra]
        assert ours.label_values[sample, "le"] >= VLLM.label_values[sample, "le"]


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_every_series_exists_at_zero_before_the_first_request(spec: MetricSpec) -> None:
    page, name = idle_page(), spec.name
    series = {key: v for key, v in page.samples.items() if key[0].startswith(name)}
    assert series
    assert set(series.values()) == {0.0}


def test_nothing_is_exported_twice() -> None:
    text = new_registry().exposition().decode()
    lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    helps = [line for line in text.splitlines() if line.startswith("# HELP")]
    assert len(helps) == len({line.split()[2] for line in helps})


def test_http_metrics_have_vllms_names_labels_and_buckets() -> None:
    registry = new_registry()
    http = HttpMetrics(registry)
    http.finished(
        method="POST",
        handler="/v1/completions",
        status=200,
        duration_s=0.3,
        request_bytes=100,
        response_bytes=0,
    )
    ours = read(registry.exposition().decode())
    names = [name for name in VLLM.label_names if name.startswith("http_")]
    assert len(names) >= 10
    for name in names:
        assert ours.label_names[name] == VLLM.label_names[name], name
        assert ours.label_values[name, "le"] == VLLM.label_values[name, "le"], name
    labels = {"handler": "/v1/completions", "method": "POST", "status": "2xx"}
    assert ours.value("http_requests_total", **labels) == 1
    assert ours.value("http_request_size_bytes_sum", handler="/v1/completions") == 100
    assert ours.value("http_request_duration_highr_seconds_bucket", le="0.25") == 0
    assert ours.value("http_request_duration_highr_seconds_bucket", le="0.5") == 1


@pytest.mark.parametrize("handler", ["/health", "/metrics", "/server_info"])
def test_probes_and_scrapes_do_not_count_as_traffic(handler: str) -> None:
    registry = new_registry()
    http = HttpMetrics(registry)
    http.finished(
        method="GET", handler=handler, status=200, duration_s=0, request_bytes=0, response_bytes=0
    )
    page = read(registry.exposition().decode())
    assert page.total("http_requests_total") == 0
    assert page.value("http_request_duration_highr_seconds_count") == 0


def test_histogram_buckets_include_their_bound_and_accumulate() -> None:
    registry = new_registry()
    cell = registry.histogram("vllm:time_to_first_token_seconds")
    for value in (0.001, 0.0011, 0.5, 9999.0):
        cell.observe(value)
    page = read(registry.exposition().decode())
    name = "vllm:time_to_first_token_seconds"
    assert page.value(f"{name}_bucket", le="0.001") == 1
    assert page.value(f"{name}_bucket", le="0.005") == 2
    assert page.value(f"{name}_bucket", le="0.5") == 3
    assert page.value(f"{name}_bucket", le="2560.0") == 3
    assert page.value(f"{name}_bucket", le="+Inf") == 4
    assert page.value(f"{name}_count") == 4
    assert page.value(f"{name}_sum") == pytest.approx(9999.5021)


def test_an_info_metric_has_one_series_that_follows_changes() -> None:
    registry = new_registry()
    registry.info("slotune:scheduler_config_info", {"max_num_seqs": 16})
    registry.info("slotune:scheduler_config_info", {"max_num_seqs": 32})
    page = read(registry.exposition().decode())
    assert page.value("slotune:scheduler_config_info", max_num_seqs="32") == 1
    assert page.label_values["slotune:scheduler_config_info", "max_num_seqs"] == {"32"}


def test_label_values_are_escaped() -> None:
    name = 'odd "name" with \\ and\nnewline'
    registry = MetricRegistry(model_name=name, max_model_len=64)
    registry.declare(VLLM_METRICS)
    page = read(registry.exposition().decode())
    assert page.value("vllm:num_requests_running", model_name=name) == 0
    assert label_text({"b": "2", "a": "1"}) == 'a="1",b="2"'


def test_length_buckets_are_1_2_5_up_to_the_models_length() -> None:
    assert length_buckets(1024) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert length_buckets(2000)[-2:] == (1000, 2000)


def test_process_and_python_metrics_are_exported() -> None:
    page = idle_page()
    assert page.value("process_resident_memory_bytes") > 0
    assert page.value("python_info") == 1
