"""Expositions recorded from real servers, and the same text changed as field reports describe."""

from __future__ import annotations

import re

import pytest

from storage.sources import RecordedSource
from storage.sources.answers import NO_NUMBER
from tests.tuner.diagnosis.cases import Clause, Slos
from tests.tuner.diagnosis.engine_pages import FIXTURES, RELEASES
from tuner.diagnosis import Diagnosis, Signals, State, collect, diagnose
from tuner.diagnosis.registry import BREAKDOWNS, SPECS

START_S = 1_796_010_160.0
SLOS = Slos((Clause("ttft", 0.5), Clause("tpot", 0.5)))


def recorded(name: str) -> str:
    return (FIXTURES / f"vllm-0.32-cpu-{name}.txt").read_text()


IDLE, STARVED, AFTER = recorded("idle"), recorded("kv-starved"), recorded("after-load")


def look(*texts: str, gap_s: float = 20.0, now_after_s: float = 0.0) -> Signals:
    snapshots = [(START_S + i * gap_s, text) for i, text in enumerate(texts)]
    now_s = snapshots[-1][0] + now_after_s
    source = RecordedSource(snapshots, now_s=now_s, scrape_interval_s=10.0)
    return collect(source, window_s=45.0, at_s=now_s, target="recorded")


def judged(*texts: str, **options: float) -> Diagnosis:
    return diagnose(look(*texts, **options), SLOS)


def test_idle_server_has_no_traffic() -> None:
    diagnosis = judged(IDLE, IDLE)
    assert diagnosis.traffic == "no_traffic"
    assert not diagnosis.severity.firing


def test_starved_server_is_kv_bound_with_preemptions() -> None:
    diagnosis = judged(IDLE, STARVED)
    assert diagnosis.causes[0].key == "3a.kv"
    assert diagnosis.node("3a.kv").state is State.CRITICAL
    assert diagnosis.node("3a").firing
    assert not diagnosis.node("3b").firing
    preempted = diagnosis.node("6")
    assert (preempted.state, preempted.symptom_of) == (State.CRITICAL, "3a.kv")
    assert preempted.value == pytest.approx(2 / 13)


def test_starved_server_without_slo_still_shows_preemptions() -> None:
    diagnosis = diagnose(look(IDLE, STARVED))
    assert diagnosis.causes[0].key == "6"


def test_window_up_to_the_end_of_the_load() -> None:
    diagnosis = judged(STARVED, AFTER, gap_s=30.0)
    assert diagnosis.node("6").value == pytest.approx(3 / 27, rel=0.3)
    assert diagnosis.causes[0].key == "3a.kv"


def test_vllm_configuration_is_read() -> None:
    signals = look(IDLE, STARVED)
    assert signals.dialect == "vllm"
    assert signals.number("num_kv_blocks") == 40
    assert signals.number("block_size") == 128
    assert signals.number("max_num_seqs") is None


def test_renamed_metrics_are_found_under_their_old_names() -> None:
    def old(text: str) -> str:
        text = text.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
        text = text.replace("vllm:inter_token_latency", "vllm:time_per_output_token")
        return text.replace("vllm:prefix_cache", "vllm:gpu_prefix_cache")

    signals = look(old(IDLE), old(STARVED))
    new = look(IDLE, STARVED)
    for name in ("kv_usage", "itl", "itl_p99", "prefix_queries"):
        assert signals.value(name) == new.value(name)
        assert signals.value(name) is not None


def test_metric_that_is_not_exported_is_named() -> None:
    def lacking(text: str) -> str:
        return re.sub(r"^.*vllm:kv_cache_usage_perc.*\n", "", text, flags=re.M)

    node = judged(lacking(IDLE), lacking(STARVED)).node("3a.kv")
    assert node.state is State.CANT_TELL
    assert "vllm:kv_cache_usage_perc" in node.summary


def test_duplicate_series_take_the_highest_kv_usage() -> None:
    def per_process(text: str) -> str:
        extra = "".join(
            f'vllm:kv_cache_usage_perc{{engine="{i}",model_name="smollm2"}} 0.0\n'
            for i in range(1, 8)
        )
        after = "# HELP vllm:prefix_cache_queries_total"
        return text.replace(after, extra + after, 1)

    assert look(per_process(IDLE), per_process(STARVED)).value("kv_usage") == 1.0


LATENCIES_BY_SUM = (
    "request_queue_time", "request_prefill_time", "request_inference_time", "time_to_first_token",
)  # fmt: skip


@pytest.mark.parametrize("total", ["-5000.0", "1.796e9"])
@pytest.mark.parametrize("latency", LATENCIES_BY_SUM)
def test_a_sum_that_cannot_be_is_distrusted_not_diagnosed(latency: str, total: str) -> None:
    """Negative, or as large as the time since 1970: whichever part of the latency it is."""
    pattern = rf"(vllm:{latency}_seconds_sum\{{[^}}]*\}}) .*"
    broken = re.sub(pattern, rf"\g<1> {total}", STARVED)
    assert broken != STARVED
    diagnosis = judged(IDLE, broken)
    assert diagnosis.node("0").state is State.CRITICAL
    assert "implausible" in diagnosis.node("0").summary
    assert {(node.state, node.value) for node in diagnosis.nodes[1:]} == {(State.CANT_TELL, None)}


def test_stale_recording_is_not_judged() -> None:
    diagnosis = judged(IDLE, STARVED, now_after_s=300.0)
    assert diagnosis.node("0").state is State.CRITICAL
    assert diagnosis.node("3a.kv").state is State.CANT_TELL


def test_window_is_never_shorter_than_four_scrapes() -> None:
    source = RecordedSource([(START_S, IDLE), (START_S + 20, STARVED)], scrape_interval_s=10.0)
    signals = collect(source, window_s=5.0, at_s=START_S + 20)
    assert signals.window_s == 40.0


def test_request_larger_than_the_pool_is_a_stall_not_a_ttft_fault() -> None:
    stuck = IDLE.replace(
        'num_requests_waiting{engine="0",model_name="smollm2"} 0.0',
        'num_requests_waiting{engine="0",model_name="smollm2"} 3.0',
    )
    diagnosis = judged(stuck, stuck)
    assert diagnosis.causes[0].key == "1"
    assert diagnosis.node("3").state is State.NOT_APPLICABLE


def test_restart_inside_the_window_is_seen() -> None:
    born = START_S + 15
    young = re.sub(r"process_start_time_seconds .*", f"process_start_time_seconds {born}", IDLE)
    node = judged(AFTER, young).node("0")
    assert node.state is State.WARNING
    assert "restarted" in node.summary


def table_names(path: str) -> set[str]:
    rows = (FIXTURES / path).read_text().splitlines()[1:]
    return {row.split("\t")[0] for row in rows}


OF_OLD = {"sglang:time_per_output_token_seconds"}
"""Of SGLang before 0.5."""


def test_registry_names_exist_in_the_engines_own_pages_and_tables() -> None:
    exported = table_names("sglang-0.5.23-metrics.tsv") | table_names("vllm-0.33-metrics.tsv")
    pages = [STARVED, *(release.page("kv-starved") for release in RELEASES.values())]
    exported |= {name for page in pages for name in re.findall(r"^# TYPE (\S+)", page, re.M)}
    bare = {name.removesuffix("_total") for name in exported}
    used = {name for spec in (*SPECS, *BREAKDOWNS) for name in (*spec.vllm, *spec.sglang)}
    engines = {n for n in used if n.startswith(("vllm:", "sglang:"))} - OF_OLD
    assert {name for name in engines if name.removesuffix("_total") not in bare} == set()


def test_registry_names_of_our_own_engine_exist() -> None:
    from engine.metrics.names import OWN_METRICS

    kinds = {"slotune:step_kind_seconds", "slotune:step_kind_flops", "slotune:step_kind_bytes"}
    ours = {spec.name for spec in OWN_METRICS}
    used = {name for spec in (*SPECS, *BREAKDOWNS) for name in spec.vllm if "slotune:" in name}
    base = {name.removesuffix("_total").removesuffix("_sum") for name in used}
    assert base <= ours
    assert {"slotune:device_peak", *kinds} <= base


@pytest.mark.parametrize("value", ["1e308", "-1e308", "NaN", "+Inf", "7"])
def test_a_gauge_that_is_out_of_its_senses_breaks_nothing(value: str) -> None:
    gauge = r"(vllm:kv_cache_usage_perc\{[^}]*\}) \S+"
    page = re.sub(gauge, rf"\g<1> {value}", AFTER)
    assert page != AFTER
    diagnosis = judged(page, page, page)
    assert max(len(node.summary) for node in diagnosis.nodes) < 200
    if value != "NaN":
        told = look(page, page, page)["kv_usage"]
        assert not told.ok
        assert told.reason.endswith("no share of a whole" if value == "7" else NO_NUMBER)
