"""The same tree over pages of several releases of vLLM and SGLang: every signal is read under the
name it has there, what a release does not export is told, and the five outcomes stay apart."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from storage.sources import RecordedSource
from storage.sources.base import MetricSource, Outcome
from tests.tuner.diagnosis.cases import Clause, Slos
from tests.tuner.diagnosis.engine_pages import RELEASES, Release
from tests.tuner.diagnosis.test_fixtures import IDLE, START_S, STARVED
from tuner.diagnosis import Signals, State, collect, diagnose
from tuner.diagnosis.registry import BREAKDOWNS, SPECS

SLOS = Slos((Clause("ttft", 0.5), Clause("tpot", 0.5)))

NOT_THE_ENGINES = {
    "peak_flops", "peak_bytes", "power_throttle", "thermal_throttle",  # a device's
    "busy_s",  # slotune's own
    "flops", "read_bytes", "write_bytes", "reuse_gap_p90", "evict_idle_p50",  # by flags only
}  # fmt: skip
OTHERS = {
    "vllm": {"idle_s", "kv_pool_tokens", "kv_page_tokens", "aborted", "device_active"},
    "sglang": {"device_active"},  # not a number, without its device timer
}
NOT_YET = {"sglang": {"aborted", "prefix_hits"}}
"""Counters that the engine exports from their first event on."""


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    return RELEASES[request.param]


def recorded(*pages: str, now_after_s: float = 0.0) -> RecordedSource:
    snapshots = [(START_S + 20.0 * i, page) for i, page in enumerate(pages)]
    now_s = snapshots[-1][0] + now_after_s
    return RecordedSource(snapshots, now_s=now_s, scrape_interval_s=10.0)


def look(source: MetricSource, at_s: float = START_S + 20.0) -> Signals:
    return collect(source, window_s=45.0, at_s=at_s)


def base(signal: str) -> str:
    """A quantile's histogram."""
    return re.sub(r"_p\d+$", "", signal)


def test_every_signal_is_read_or_known_to_be_missing(release: Release) -> None:
    signals = look(recorded(*release.loaded))
    assert signals.dialect == release.dialect
    for spec in SPECS:
        reading = signals[spec.name]
        absent = NOT_THE_ENGINES | OTHERS[release.dialect] | set(release.lacks)
        missing = spec.name in absent or base(spec.name) in absent
        assert reading.ok is not missing, (spec.name, reading)
    assert signals["device_active"].outcome is (
        Outcome.NO_TRAFFIC if release.dialect == "sglang" else Outcome.NO_DATA
    )
    for split in BREAKDOWNS:
        assert bool(signals.of(split.name)) is (split.name in release.splits), split.name


def test_figures_are_those_of_the_page(release: Release) -> None:
    signals = look(recorded(*release.loaded))
    names = {"vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
             "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs")}  # fmt: skip
    for signal, name in zip(("running", "waiting"), names[release.dialect], strict=True):
        [told] = re.findall(rf"^{name}\{{.*\}} (\S+)$", release.page("kv-starved"), re.M)
        assert signals.value(signal) == float(told)
    assert (signals.value("kv_usage") or 0) > 0.9
    assert signals.value("prompt_tokens") == 256.0
    assert signals.value("answer_tokens") == 128.0
    assert signals.models == ("smollm2",)
    pool = (signals.number("num_kv_blocks") or 0) * (signals.number("block_size") or 0)
    assert pool == 5120


def test_what_a_release_lacks_cannot_be_told(release: Release) -> None:
    signals = look(recorded(*release.loaded))
    diagnosis = diagnose(signals, SLOS)
    for name, key in release.lacks.items():
        assert signals[name].outcome is Outcome.NO_DATA, name
        node = diagnosis.node(key)
        assert node.state is State.CANT_TELL, key
        assert node.missing
        assert node.how_to_get


def test_starved_of_kv(release: Release) -> None:
    diagnosis = diagnose(look(recorded(*release.loaded)), SLOS)
    assert [cause.key for cause in diagnosis.causes] == ["3a.kv"]
    assert diagnosis.node("3a").firing
    preempted = diagnosis.node("6")
    assert (preempted.state, preempted.symptom_of) == (State.CRITICAL, "3a.kv")


def test_after_the_load_there_is_no_traffic(release: Release) -> None:
    after = release.page("after-load")
    signals = look(recorded(after, after))
    diagnosis = diagnose(signals, SLOS)
    assert diagnosis.traffic == "no_traffic"
    assert not diagnosis.severity.firing
    assert signals.value("generated") == 0.0
    assert signals["ttft"].outcome is Outcome.NO_TRAFFIC


def test_a_server_that_has_served_nothing_has_no_traffic(release: Release) -> None:
    """V0 engines and SGLang export settings, and the rest from the first request on."""
    page = release.page("idle" if release.counts_from_the_start else "unserved")
    signals = look(recorded(page, page))
    diagnosis = diagnose(signals, SLOS)
    assert diagnosis.traffic == "no_traffic"
    assert not diagnosis.severity.firing
    trust = diagnosis.node("0")
    assert trust.state is State.OK
    late = not release.counts_from_the_start
    assert ("no request yet" in trust.summary) is late
    assert signals["ttft"].outcome is (Outcome.NO_DATA if late else Outcome.NO_TRAFFIC)
    assert signals["generated"].outcome is (Outcome.NO_DATA if late else Outcome.VALUE)


def test_a_page_without_the_queue_is_not_taken_for_idle() -> None:
    """What was relabelled away may be anything; counters tell that requests were served."""
    lost = re.sub(r".*vllm:num_requests_(running|waiting)\b.*\n", "", STARVED)
    assert diagnose(look(recorded(lost, lost))).traffic == "unknown"


@pytest.mark.parametrize("signal", sorted(NOT_YET["sglang"]))
def test_what_sglang_exports_from_its_first_event_on_is_0_before(signal: str) -> None:
    signals = look(recorded(*RELEASES["sglang-0.5.23"].loaded))
    assert signals.value(signal) == 0.0


def test_sglang_without_a_retraction_is_still_judged() -> None:
    pages = [re.sub(r".*num_retracted_requests_total.*\n", "", page)
             for page in RELEASES["sglang-0.5.23"].loaded]  # fmt: skip
    diagnosis = diagnose(look(recorded(*pages)), SLOS)
    assert diagnosis.causes[0].key == "3a.kv"
    assert diagnosis.node("6").state is State.OK
    older = [page.replace("sglang:full_token_usage", "sglang:of_old") for page in pages]
    assert diagnose(look(recorded(*older)), SLOS).node("6").state is State.CANT_TELL


def test_sglangs_prefill_is_one_of_its_stages() -> None:
    signals = look(recorded(*RELEASES["sglang-0.5.23"].loaded))
    assert 1.0 < (signals.value("prefill") or 0.0) < (signals.value("queue") or 0.0)
    assert 'stage="prefill_forward"' in signals["prefill_p95"].query


def test_tokens_looked_up_at_every_step_are_written_once() -> None:
    """vLLM 0.9 counts 41,090 tokens looked up, of 7,168 in the prompts."""
    signals = look(recorded(*RELEASES["vllm-0.9.2"].loaded))
    assert (signals.value("prefix_queries") or 0.0) == 41_090
    assert signals.value("prefix_written") == signals.value("prompted") == 7168


def test_estimates_that_stay_0_are_none() -> None:
    """vLLM exports them without --enable-mfu-metrics too."""
    peak = 'slotune:device_peak{kind="flops"} 1e12\nslotune:device_peak{kind="bandwidth"} 1e11\n'
    pages = [page + peak for page in RELEASES["vllm-0.33.0"].loaded]
    assert "vllm:estimated_flops_per_gpu_total{" in pages[1]
    signals = collect(recorded(*pages), window_s=45.0, at_s=START_S + 20.0, dialect="vllm")
    assert signals["flops"].outcome is Outcome.NO_DATA
    diagnosis = diagnose(signals, SLOS)
    for key in ("3b.compute", "4.bandwidth"):
        assert diagnosis.node(key).state is State.CANT_TELL
        assert "--enable-mfu-metrics" in diagnosis.node(key).how_to_get


class Silent(RecordedSource):
    """A target that stopped to answer after what it told."""

    def _fault(self) -> tuple[Outcome, str] | None:
        return Outcome.UNREACHABLE, "connection refused"


def without_ttft(page: str) -> str:
    return re.sub(r".*time_to_first_token.*\n", "", page)


def silent(release: Release) -> MetricSource:
    before, starved = release.loaded
    return Silent([(START_S, before), (START_S + 20, starved)], scrape_interval_s=10.0)


OUTCOMES: dict[str, tuple[Callable[[Release], MetricSource], Outcome]] = {
    "value": (lambda r: recorded(*r.loaded), Outcome.VALUE),
    "no traffic": (lambda r: recorded(r.loaded[1], r.loaded[1]), Outcome.NO_TRAFFIC),
    "no data": (lambda r: recorded(*map(without_ttft, r.loaded)), Outcome.NO_DATA),
    "unreachable": (silent, Outcome.UNREACHABLE),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_outcomes_of_a_latency_stay_apart(release: Release, case: str) -> None:
    make, outcome = OUTCOMES[case]
    signals = look(make(release))
    assert signals["ttft"].outcome is outcome
    assert (signals.value("ttft") is not None) == (outcome is Outcome.VALUE)
    node = diagnose(signals, SLOS).node("3")
    assert {
        Outcome.VALUE: node.state.firing,
        Outcome.NO_TRAFFIC: node.state is State.NOT_APPLICABLE,
        Outcome.NO_DATA: node.state is State.CANT_TELL and "time_to_first" in str(node.missing),
        Outcome.UNREACHABLE: node.state is State.CANT_TELL,
    }[outcome], node


def test_an_old_page_is_stale_and_judged_by_nobody(release: Release) -> None:
    source = recorded(*release.loaded, now_after_s=120.0)
    signals = look(source, at_s=START_S + 140.0)
    assert signals["running"].outcome is Outcome.STALE
    nodes = diagnose(signals, SLOS).nodes
    assert nodes[0].state is State.CRITICAL
    assert {node.state for node in nodes[1:]} == {State.CANT_TELL}


def test_a_page_that_lost_a_series_tells_it_as_stale() -> None:
    """Exported once, gone now: not the same as never exported."""
    gone = re.sub(r".*vllm:kv_cache_usage_perc\{.*\n", "", STARVED)
    reading = recorded(IDLE, gone).gauge("vllm:kv_cache_usage_perc")
    assert reading.outcome is Outcome.STALE
    assert recorded(gone, gone).gauge("vllm:kv_cache_usage_perc").outcome is Outcome.NO_DATA


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_tokens_are_counted_while_requests_run(dialect: str) -> None:
    """One long request in the whole window: sums of finished requests stand still, as a server that
    has stalled would leave them."""
    counter = {
        "vllm": "vllm:generation_tokens_total {0}\nvllm:request_generation_tokens_sum 0\n"
        "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:prompt_tokens_total 9\n",
        "sglang": 'sglang:realtime_tokens_total{{mode="decode"}} {0}\n'
        'sglang:realtime_tokens_total{{mode="prefill_compute"}} 7\n'
        "sglang:generation_tokens_total 40\nsglang:prompt_tokens_total 9\n"
        "sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\n",
    }[dialect]
    pages = [(START_S + 15 * i, counter.format(300 * i)) for i in range(6)]
    signals = collect(RecordedSource(pages), window_s=60.0, at_s=pages[-1][0])
    assert signals.value("generated") == pytest.approx(1200)
    diagnosis = diagnose(signals)
    assert diagnosis.node("1").state is State.OK
    assert diagnosis.node("5").value == pytest.approx(20.0)
