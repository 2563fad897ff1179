"""Two replicas under vLLM's names: every figure is of both, and each device's share its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.sources import RecordedSource
from tests.tuner.diagnosis.cases import PREFILL, QUEUE, SLOS, SLOW_TPOT, signals
from tests.tuner.diagnosis.test_inferred import POOL, STEADY
from tuner.diagnosis import Diagnosis, Signals, State, collect, diagnose
from tuner.diagnosis.context import Case
from tuner.diagnosis.roofline import mbu, mfu
from tuner.diagnosis.thresholds import DevicePeak, Thresholds
from tuner.slo import parse_slos

START_S = 1_800_000_000.0
GAUGES = {"num_requests_running": 64, "num_requests_waiting": 6, "kv_cache_usage_perc": 0.4}
TTFT_BOUNDS_S = ("0.5", "1.0", "5.0", "+Inf")


def engine(age_s: float, labels: str, *, processes: int = 1, idle: int = 0) -> str:
    """One engine: 64 run, 6 wait, TTFT about 3 s, 2 requests a second; a quarter of 1e12 FLOP/s and
    of 1e12 B/s. Its gauges are told by several processes, `idle` of them as 0."""
    done = 2.0 * age_s
    told = [
        f'vllm:{name}{{{labels},pid="{pid}"}} {0 if pid < idle else value}'
        for name, value in GAUGES.items()
        for pid in range(processes)
    ]
    latencies = {"time_to_first_token": 3.0, "e2e_request_latency": 20.0,
                 "request_queue_time": 2.5, "request_prefill_time": 0.3,
                 "request_inference_time": 17.0}  # fmt: skip
    for name, mean_s in latencies.items():
        metric = f"vllm:{name}_seconds"
        told += [
            f'{metric}_bucket{{{labels},le="{le}"}} {done * (le in TTFT_BOUNDS_S[2:])}'
            for le in TTFT_BOUNDS_S
        ]
        told += [f"{metric}_sum{{{labels}}} {mean_s * done}", f"{metric}_count{{{labels}}} {done}"]
    counted = {"request_success_total": done, "generation_tokens_total": 200 * done,
               "prompt_tokens_total": 100 * done, "num_preemptions_total": 0,
               "estimated_flops_per_gpu_total": 2.5e11 * age_s,
               "estimated_read_bytes_per_gpu_total": 2e11 * age_s,
               "estimated_write_bytes_per_gpu_total": 5e10 * age_s}  # fmt: skip
    return "\n".join([*told, *(f"vllm:{n}{{{labels}}} {v}" for n, v in counted.items()), ""])


def one(age_s: float) -> str:
    return engine(age_s, 'engine="0",model_name="m"', processes=3, idle=2)


def two(age_s: float) -> str:
    first = engine(age_s, 'engine="0",model_name="m"', processes=3, idle=2)
    return first + engine(age_s, 'engine="1",model_name="m"', processes=2)


def two_by_two(age_s: float) -> str:
    return "".join(
        engine(age_s, f'instance="{host}:8000",engine="{rank}",model_name="m"')
        for host in ("a", "b")
        for rank in ("0", "1")
    )


def look(page: Callable[[float], str], **config: str) -> Signals:
    pages = [(START_S + 5.0 * i, page(1000 + 5.0 * i)) for i in range(14)]
    return collect(RecordedSource(pages), window_s=60.0, known=config, at_s=pages[-1][0])


def judged(page: Callable[[float], str]) -> Diagnosis:
    seen = look(page, max_num_seqs="64", chunk_size="8192")
    return diagnose(seen, parse_slos(["ttft_p95<500ms"]))


@pytest.mark.parametrize(("page", "engines"), [(one, 1), (two, 2), (two_by_two, 4)])
def test_gauges_are_of_all_engines_now_and_over_the_window(
    page: Callable[[float], str], engines: int
) -> None:
    seen = look(page)
    for name in ("running", "running_mean", "running_most", "running_at_wait"):
        assert seen.value(name) == 64 * engines, name
    assert seen.value("waiting") == seen.value("waiting_mean") == 6 * engines
    assert seen.value("kv_usage") == seen.value("kv_usage_mean") == pytest.approx(0.4)
    parts = seen.of("running_by_replica")
    assert list(parts.values()) == ([64.0] * engines if engines > 1 else [])


@pytest.mark.parametrize("page", [one, two, two_by_two])
def test_every_engine_at_its_cap_is_the_cap(page: Callable[[float], str]) -> None:
    """By the window too: the newest scrape may fall between two loads."""
    diagnosis = judged(page)
    assert diagnosis.node("3a.seq_cap").value == 1.0
    assert diagnosis.causes[0].key == "3a.seq_cap", diagnosis.headline


def test_the_mean_is_held_against_the_cap_of_all() -> None:
    """Half of 128 places were taken, and the other half now."""

    def page(age_s: float) -> str:
        text = two(age_s)
        return text if age_s < 1060 else text.replace('"} 64', '"} 0').replace('"} 6\n', '"} 0\n')

    seen = look(page, max_num_seqs="64")
    assert seen.value("running") == 0
    assert seen.value("running_mean") == pytest.approx(128 * 11 / 13)
    assert seen.value("waiting_rise") == pytest.approx(-6)


@pytest.mark.parametrize(
    ("ran_s", "bars", "names"),
    [
        ({"a": 1000.0, "b": 1000.0}, False, ""),
        ({"a": 1000.0, "b": 20.0}, False, "b:8000 started inside the window"),
        ({"a": 30.0, "b": 20.0}, True, "the engine restarted inside the window"),
    ],
)
def test_one_replica_that_starts_leaves_the_others_to_be_judged(
    ran_s: dict[str, float], bars: bool, names: str
) -> None:
    now_s = START_S + 65.0

    def page(age_s: float) -> str:
        starts = [f'process_start_time_seconds{{instance="{host}:8000"}} {now_s - ran}'
                  for host, ran in ran_s.items()]  # fmt: skip
        return "\n".join([two_by_two(age_s), *starts, ""])

    found = judged(page)
    trust = found.node("0")
    assert names in trust.summary
    assert (trust.state is State.WARNING) is bool(names)
    assert bool(trust.missing) is bars
    assert found.node("3a.seq_cap").firing is not bars


@pytest.mark.parametrize(
    ("silent_s", "runs_s", "state"),
    [
        (65.0, 65.0, State.CRITICAL),
        (65.0, 30.0, State.WARNING),
        (65.0, 5.0, State.OK),
        (30.0, 65.0, State.OK),
    ],
)
def test_a_replica_that_hangs_is_named_though_tokens_come_of_the_others(
    silent_s: float, runs_s: float, state: State
) -> None:
    """Replica 1 counts nothing in the last silent_s, and runs requests in the last runs_s."""

    def page(age_s: float) -> str:
        other = engine(min(age_s, 1065.0 - silent_s), 'engine="1",model_name="m"')
        if age_s <= 1065.0 - runs_s:
            other = other.replace("} 64", "} 0")
        return engine(age_s, 'engine="0",model_name="m"') + other

    node = judged(page).node("1")
    assert node.state is state
    assert ("1 runs requests, but gave no token in" in node.summary) is state.firing


def test_replicas_of_several_hosts_are_named_by_host_and_engine() -> None:
    seen = look(two_by_two)
    names = ["a:8000/0", "a:8000/1", "b:8000/0", "b:8000/1"]
    assert sorted(seen.of("running_by_replica")) == names
    assert sorted(seen.of("ttft_by_replica")) == names
    assert seen.of("ttft_by_replica")["b:8000/1"] == pytest.approx(3.0)
    assert seen.of("tokens_by_replica")["a:8000/0"] == pytest.approx(2 * 300 * 60, rel=0.05)


@pytest.mark.parametrize(("page", "engines"), [(one, 1), (two, 2)])
def test_two_devices_at_a_quarter_are_not_one_at_a_half(
    page: Callable[[float], str], engines: int
) -> None:
    peak = Thresholds(device=DevicePeak(1e12, 1e12))
    case = Case(look(page), peak)
    assert case.replicas == engines
    assert mfu(case) == pytest.approx(0.25)
    assert mbu(case) == pytest.approx(0.25)


EVEN = {"running_by_replica": {"a": 4.0, "b": 4.0}}


def test_one_pool_holds_what_half_of_the_prompts_wrote() -> None:
    """9,000 tokens in two pools of 8,192."""
    fallen = PREFILL | {"kv_usage": 0.1, "kv_usage_mean": 0.1, "hit_rate": 0.1, "config": POOL}
    assert diagnose(signals(**fallen, prefix_written=9000.0), SLOS).node("3b.thrash").firing
    two_pools = signals(**fallen, prefix_written=9000.0, breakdowns=EVEN)
    assert not diagnose(two_pools, SLOS).node("3b.thrash").firing
    twice = signals(**fallen, prefix_written=18_000.0, breakdowns=EVEN)
    assert diagnose(twice, SLOS).node("3b.thrash").firing


def test_a_step_holds_the_requests_of_one_engine() -> None:
    """Eight run on two engines: a step of seven tokens holds more than its four decodes."""
    usual = SLOW_TPOT | {"itl_p50": 0.1, "itl_p99": 0.15, "step_tokens_p50": 7.0}
    assert not diagnose(signals(**usual), SLOS).node("4.mixed").firing
    assert diagnose(signals(**usual, breakdowns=EVEN), SLOS).node("4.mixed").firing


def test_a_cap_that_is_not_told_is_each_engines() -> None:
    node = diagnose(signals(**STEADY, breakdowns=EVEN), SLOS).node("3a.seq_cap")
    assert "as at a cap of 2 each" in node.summary
    assert "--set max_num_seqs=2" in node.how_to_get


def test_of_each_engines_step_some_have_just_ended() -> None:
    """110 of 128 places are taken at the ends of steps, nine ended in each engine's."""
    quick = QUEUE | {"running": 0.0, "running_mean": 100.0, "running_at_wait": 110.0}
    seen = {**quick, "finished": 900.0, "config": {"max_num_seqs": "64"}}
    assert diagnose(signals(**seen, breakdowns=EVEN), SLOS).node("3a.seq_cap").firing
    few = {**seen, "finished": 30.0}
    assert not diagnose(signals(**few, breakdowns=EVEN), SLOS).node("3a.seq_cap").firing


def test_the_queries_are_what_is_computed() -> None:
    seen = look(two)
    each = "max by (instance, engine, dp_rank, model_name)"
    running = f"sum({each} (vllm:num_requests_running))"
    waiting = running.replace("running", "waiting")
    queries = {name: reading.query for name, reading in seen.readings.items()}
    assert queries["running"] == running
    assert queries["running_mean"] == f"avg_over_time(({running})[60s:5s])"
    assert queries["running_most"] == f"max_over_time(({running})[60s:5s])"
    assert queries["running_share"] == f"avg_over_time(({running} > bool 0)[60s:5s])"
    assert queries["running_at_wait"] == f"avg_over_time(({running} and {waiting} > 0)[60s:5s])"
    assert queries["waiting_growing_s"].startswith(f"({waiting})[")
    assert queries["waiting_rise"] == (
        f"avg_over_time(({waiting})[20s:5s]) - avg_over_time(({waiting})[20s:5s] offset 40s)"
    )
    assert not any("deriv(" in query or "delta(" in query for query in queries.values())
    tokens = seen.breakdowns["tokens_by_replica"]["0"].query
    assert "vllm:prompt_tokens_total" in tokens
    assert "vllm:generation_tokens_total" in tokens
