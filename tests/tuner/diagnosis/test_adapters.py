"""The same tree over vLLM's names of several releases and over SGLang's; what a target does not
export is told, and the five outcomes of a reading stay apart on each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from storage.sources import RecordedSource
from storage.sources.base import MetricSource, Outcome
from tests.tuner.diagnosis.cases import Clause, Slos
from tests.tuner.diagnosis.test_fixtures import FIXTURES, IDLE, START_S, STARVED
from tuner.diagnosis import Signals, State, collect, diagnose

SLOS = Slos((Clause("ttft", 0.5), Clause("tpot", 0.5)))
BOUNDS_S = (0.1, 1.0, 10.0)


def sglang(busy: bool) -> str:
    """A page with every metric of SGLang's own table: nothing done yet, or 20 requests served in
    2 s each with 3 waiting."""
    lines = ["process_start_time_seconds 1796000000"]
    for row in (FIXTURES / "sglang-0.5.23-metrics.tsv").read_text().splitlines()[1:]:
        name, kind, extra, *_ = [*row.split("\t"), "", ""]
        labels = 'model_name="smollm2"' + (',mode="decode"' if "'mode'" in extra else "")
        if kind == "histogram":
            count = 20 if busy else 0
            lines += [
                f'{name}_bucket{{{labels},le="{bound}"}} {count if bound >= 10 else 0}'
                for bound in BOUNDS_S
            ]
            lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {count}')
            lines.append(f"{name}_sum{{{labels}}} {2 * count}")
            lines.append(f"{name}_count{{{labels}}} {count}")
        else:
            value = 20 if busy and kind == "counter" else 0
            lines.append(f"{name}{{{labels}}} {value}")
    page = "\n".join(lines) + "\n"
    if busy:
        for name, value in (("num_running_reqs", 7), ("num_queue_reqs", 3), ("token_usage", 0.97)):
            page = re.sub(rf"(sglang:{name}{{[^}}]*}}) 0", rf"\g<1> {value}", page)
    return page


def vllm_0_6(text: str) -> str:
    """As vLLM 0.6 exported it: old names, and none of what came later."""
    for new, old in (
        ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        ("inter_token_latency", "time_per_output_token"),
    ):
        text = text.replace(f"vllm:{new}", f"vllm:{old}")
    later = (
        "prefix_cache", "num_requests_waiting_by_reason", "admission_rejections",
        "request_time_per_output_token", "prompt_tokens_by_source", "prompt_tokens_cached",
        "request_num_preemptions", "request_prefill_kv_computed",
    )  # fmt: skip
    kept = [line for line in text.splitlines() if not any(f"vllm:{n}" in line for n in later)]
    return "\n".join(kept) + "\n"


def vllm_0_9(text: str) -> str:
    """As vLLM 0.9: V1's own names for the prefix cache, the gap still under its old name."""
    text = text.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    text = text.replace("vllm:prefix_cache", "vllm:gpu_prefix_cache")
    return text.replace("vllm:inter_token_latency", "vllm:time_per_output_token")


@dataclass(frozen=True)
class Engine:
    """idle and busy pages; lacks: signals this release does not export, for some node that says
    it cannot tell."""

    dialect: str
    idle: str
    busy: str
    lacks: dict[str, str]


ENGINES = {
    "vLLM 0.32": Engine("vllm", IDLE, STARVED, {}),
    "vLLM 0.9": Engine("vllm", vllm_0_9(IDLE), vllm_0_9(STARVED), {}),
    "vLLM 0.6": Engine(
        "vllm", vllm_0_6(IDLE), vllm_0_6(STARVED),
        {"tpot": "4", "rejections": "2.rejections", "prefix_hits": "3b.thrash"},
    ),
    "SGLang 0.5": Engine(
        "sglang", sglang(busy=False), sglang(busy=True),
        {"prefill": "3b", "step_tokens": "3a.token_budget", "rejections": "2.rejections"},
    ),
}  # fmt: skip
KNOWN = ("running", "waiting", "kv_usage", "generated", "prompted", "preemptions", "ttft", "itl",
         "e2e", "queue", "finished")  # fmt: skip


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]


def recorded(*pages: str, now_after_s: float = 0.0) -> RecordedSource:
    snapshots = [(START_S + 20.0 * i, page) for i, page in enumerate(pages)]
    now_s = snapshots[-1][0] + now_after_s
    return RecordedSource(snapshots, now_s=now_s, scrape_interval_s=10.0)


def look(source: MetricSource, at_s: float = START_S + 20.0) -> Signals:
    return collect(source, window_s=45.0, at_s=at_s)


def test_what_every_release_tells_is_read(engine: Engine) -> None:
    signals = look(recorded(engine.idle, engine.busy))
    assert signals.dialect == engine.dialect
    for name in KNOWN:
        assert signals[name].ok, (name, signals[name].reason)
    assert (signals.value("waiting") or 0) > 0
    assert (signals.value("kv_usage") or 0) > 0.9


def test_what_a_release_lacks_cannot_be_told(engine: Engine) -> None:
    signals = look(recorded(engine.idle, engine.busy))
    diagnosis = diagnose(signals, SLOS)
    for name, key in engine.lacks.items():
        assert signals[name].outcome is Outcome.NO_DATA, name
        node = diagnosis.node(key)
        assert node.state is State.CANT_TELL, key
        assert node.missing
        assert node.how_to_get


class Silent(RecordedSource):
    """A target that stopped to answer after what it told."""

    def _fault(self) -> tuple[Outcome, str] | None:
        return Outcome.UNREACHABLE, "connection refused"


def without_ttft(page: str) -> str:
    return re.sub(r".*time_to_first_token.*\n", "", page)


def silent(engine: Engine) -> MetricSource:
    return Silent([(START_S, engine.idle), (START_S + 20, engine.busy)], scrape_interval_s=10.0)


OUTCOMES: dict[str, tuple[Callable[[Engine], MetricSource], Outcome]] = {
    "value": (lambda e: recorded(e.idle, e.busy), Outcome.VALUE),
    "no traffic": (lambda e: recorded(e.busy, e.busy), Outcome.NO_TRAFFIC),
    "no data": (
        lambda e: recorded(without_ttft(e.idle), without_ttft(e.busy)),
        Outcome.NO_DATA,
    ),
    "unreachable": (silent, Outcome.UNREACHABLE),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTCOMES)
def test_outcomes_of_a_latency_stay_apart(engine: Engine, case: str) -> None:
    make, outcome = OUTCOMES[case]
    signals = look(make(engine))
    assert signals["ttft"].outcome is outcome
    assert (signals.value("ttft") is not None) == (outcome is Outcome.VALUE)
    node = diagnose(signals, SLOS).node("3")
    assert {
        Outcome.VALUE: node.state.firing,
        Outcome.NO_TRAFFIC: node.state is State.NOT_APPLICABLE,
        Outcome.NO_DATA: node.state is State.CANT_TELL and "time_to_first" in str(node.missing),
        Outcome.UNREACHABLE: node.state is State.CANT_TELL,
    }[outcome], node


def test_an_idle_server_counts_0_which_is_a_value(engine: Engine) -> None:
    signals = look(recorded(engine.idle, engine.idle))
    assert signals["generated"].outcome is Outcome.VALUE
    assert signals.value("generated") == 0.0
    assert signals["ttft"].outcome is Outcome.NO_TRAFFIC
    assert diagnose(signals, SLOS).traffic == "no_traffic"


def test_an_old_page_is_stale_and_judged_by_nobody(engine: Engine) -> None:
    source = recorded(engine.idle, engine.busy, now_after_s=120.0)
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
