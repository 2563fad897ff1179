"""What the tree concludes where an engine counts less than slotune's does, as vLLM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.sources import RecordedSource
from tests.tuner.diagnosis.cases import PREFILL, QUEUE, SLOS, SLOW_TPOT, reading, signals
from tuner.diagnosis import Confidence, Diagnosis, History, State, collect, diagnose
from tuner.diagnosis.levers import FEWER_SEQS, MORE_KV, here
from tuner.diagnosis.registry import how_to_get
from tuner.diagnosis.server_info import of_vllm
from tuner.diagnosis.signals import Signals

POOL = {"num_kv_blocks": "64", "block_size": "128"}


def judged(seen: Signals) -> Diagnosis:
    return diagnose(seen, SLOS)


@pytest.mark.parametrize(
    ("config", "knob"),
    [
        ({}, "gpu_memory_utilization"),
        ({"kv_cache_memory_bytes": "1073741824"}, "kv_cache_memory_bytes"),
        ({"kv_cache_memory_bytes": "1", "num_gpu_blocks_override": "40"},
         "num_gpu_blocks_override"),
    ],
)  # fmt: skip
def test_more_kv_names_the_knob_that_the_server_obeys(config: dict[str, str], knob: str) -> None:
    assert [act.title for act in here((MORE_KV, FEWER_SEQS), config)] == [
        f"{knob} up", "max_num_seqs down",
    ]  # fmt: skip
    node = judged(signals(config=config, **QUEUE | {"kv_usage": 0.99})).node("3a.kv")
    assert node.levers[0].knob == knob


def test_a_pool_written_over_holds_prefixes_however_few_requests_run() -> None:
    fallen = PREFILL | {"kv_usage": 0.1, "kv_usage_mean": 0.1, "hit_rate": 0.1, "config": POOL}
    thrashing = judged(signals(**fallen, prefix_written=9000.0))
    assert thrashing.causes[0].key == "3b.thrash"
    assert "prompts wrote 1.1 × the KV pool" in thrashing.causes[0].summary
    assert not judged(signals(**fallen, prefix_written=4000.0)).node("3b.thrash").firing


def test_a_low_hit_rate_without_a_time_before_cannot_be_told() -> None:
    low = {**PREFILL, "kv_usage": 0.95, "hit_rate": 0.1, "hit_rate_before": None}
    node = judged(signals(**low)).node("3b.thrash")
    assert node.state is State.CANT_TELL
    assert node.missing == ("hit_rate_before", "reuse_gap_p90", "evict_idle_p50")
    assert "--kv-cache-metrics" in node.how_to_get
    for fine in ({"hit_rate": 0.9}, {"kv_usage": 0.3}):
        assert judged(signals(**low | fine)).node("3b.thrash").state is State.OK


@pytest.mark.parametrize(("edge", "fires"), [(8.0, False), (16.0, True)])
def test_decodes_in_a_wide_bucket_are_no_prompts(edge: float, fires: bool) -> None:
    """Eight requests run: a step of "more than eight tokens" may be theirs, one of 16 is not."""
    planted = SLOW_TPOT | {"itl_p50": 0.02, "itl_p99": 0.3}
    seen = signals(**planted)
    wide = replace(reading(15.5, "step_tokens"), bucket=(edge, 2 * edge))
    node = judged(replace(seen, readings={**seen.readings, "step_tokens_p99": wide})).node(
        "4.interference"
    )
    assert node.firing is fires


def test_prompts_in_most_steps_are_seen_by_the_steps_size() -> None:
    usual = SLOW_TPOT | {"itl_p50": 0.1, "itl_p99": 0.15, "step_tokens_p50": 500.0}
    found = judged(signals(**usual))
    assert found.causes[0].key == "4.mixed"
    assert found.causes[0].levers[0].title == "chunk_size down"
    assert not judged(signals(**usual | {"step_tokens_p50": 8.0})).node("4.mixed").firing


GROWN = QUEUE | {
    "running": 64.0, "waiting_growing_s": 400.0, "busy_s": None, "idle_s": None,
    "breakdowns": {"phase_s": {}}, "config": {"max_num_seqs": "64", "max_num_seqs_high": "64"},
}  # fmt: skip


def test_an_engine_that_always_holds_requests_is_saturated() -> None:
    found = judged(signals(**GROWN, running_share=1.0))
    assert found.causes[0].key == "3a.overload"
    assert "requests ran at 100% of the scrapes" in found.causes[0].summary
    assert found.node("3a.seq_cap").symptom_of == "3a.overload"
    assert not judged(signals(**GROWN, running_share=0.5)).node("3a.overload").firing


def test_overload_without_a_highest_value_cannot_be_told() -> None:
    config = {"max_num_seqs_high": "", "chunk_size_high": ""}
    node = judged(signals(**GROWN | {"config": config}, running_share=1.0)).node("3a.overload")
    assert node.state is State.CANT_TELL
    assert "--set max_num_seqs_high=" in node.how_to_get


def test_vllms_word_of_itself() -> None:
    scheduler = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "policy": "fcfs"}
    told = {"vllm_config": {"scheduler_config": scheduler}, "vllm_env": {}}
    assert of_vllm(told) == {"max_num_seqs": 4, "max_num_batched_tokens": 64}
    assert of_vllm({"vllm_config": "model='m', …"}) == {}
    assert of_vllm({}) == {}


@pytest.mark.parametrize(("mean", "fires"), [(126.0, False), (900.0, True)])
def test_steps_that_vllm_does_not_count_are_allowed_for(mean: float, fires: bool) -> None:
    """Prompts of 900 in chunks of 64: one counted step holds a whole prompt, 13 are not counted."""
    config = {"chunk_size": "64", "max_num_seqs": "64"}
    found = judged(signals(**QUEUE, prompt_tokens=900.0, step_tokens=mean, config=config))
    node = found.node("3a.token_budget")
    assert node.firing is fires
    assert node.value is not None
    assert node.value < 1.0


STEADY = QUEUE | {
    "running": 4.0, "running_at_wait": 4.0, "running_most": 4.0, "kv_usage": 0.2,
    "kv_usage_mean": 0.2, "config": POOL | {"max_num_seqs": "", "chunk_size": ""},
}  # fmt: skip


def test_the_cap_counts_while_others_wait() -> None:
    """A window that also holds the time before and after the load has a lower mean."""
    seen = {**QUEUE, "running": 0.0, "running_mean": 40.0, "waiting": 0.0}
    assert not judged(signals(**seen)).node("3a.seq_cap").firing
    assert judged(signals(**seen, running_at_wait=64.0)).node("3a.seq_cap").firing


@pytest.mark.parametrize(("ended", "fires"), [(30.0, False), (900.0, True)])
def test_those_that_a_step_has_just_ended_took_a_place(ended: float, fires: bool) -> None:
    """Of 64 places 55 are taken at the end of a step: nine ended in it, or were never taken."""
    quick = {**QUEUE, "running": 0.0, "running_mean": 50.0, "running_at_wait": 55.0}
    assert judged(signals(**quick, finished=ended)).node("3a.seq_cap").firing is fires


def test_of_two_places_nearly_two_are_taken() -> None:
    """Seen on vLLM with answers of six tokens: 1.56 at the ends of steps, 0.32 ended in each."""
    quick = {**QUEUE, "running": 0.0, "running_mean": 1.4, "running_at_wait": 1.56, "finished": 32}
    told = signals(**quick, config={"max_num_seqs": "2"})
    assert judged(told).node("3a.seq_cap").firing


def test_a_cap_that_is_not_told_is_seen_by_how_steadily_as_many_run() -> None:
    found = judged(signals(**STEADY))
    assert found.causes[0].key == "3a.seq_cap"
    assert "as at a cap of 4" in found.causes[0].summary
    assert found.causes[0].levers[0].title == "max_num_seqs up"
    assert "--set max_num_seqs=4" in found.causes[0].how_to_get


@pytest.mark.parametrize(
    "other",
    [
        {"running_most": 6.0},
        {"prefill": 1.0},
        {"prompt_tokens": 4000.0},
        {"waiting": 0.0, "waiting_mean": 0.0},
        {"kv_usage": 0.92},
        {"prefill": None},
    ],
    ids=str,
)
def test_what_is_no_cap_is_not_taken_for_one(other: dict[str, float | None]) -> None:
    """More ran at times, prompts take the time, the next has no room, nobody waits."""
    assert judged(signals(**STEADY | other)).node("3a.seq_cap").state is State.CANT_TELL


LOW = {**PREFILL, "kv_usage": 0.95, "hit_rate": 0.2, "hit_rate_before": 0.2}
EVICTED = {"reuse_gap_p90": 8.0, "evict_idle_p50": 10.0}
"""Nine of ten reuses come within 8 s, and a block that is unused for 10 s is evicted."""


@pytest.mark.parametrize("before", [0.2, 0.1, 0.21, None])
def test_a_low_hit_rate_that_has_been_low_is_neither_ill_nor_well(before: float | None) -> None:
    """A cache that thrashed before the watch began looks like prompts that share nothing."""
    node = judged(signals(**LOW | {"hit_rate_before": before})).node("3b.thrash")
    assert node.state is State.CANT_TELL
    assert "prompts that share nothing look the same" in node.summary
    assert "tuner verify --knob" in node.how_to_get


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"hit_rate": 0.9, "hit_rate_before": 0.9}, "hit rate 90%"),
        ({"kv_usage": 0.3, "kv_usage_mean": 0.3}, "30% of the KV blocks"),
    ],
)
def test_much_reused_or_a_pool_with_room_is_well(other: dict[str, float], says: str) -> None:
    node = judged(signals(**LOW | EVICTED | other)).node("3b.thrash")
    assert node.state is State.OK
    assert says in node.summary


def test_reuse_up_to_eviction_makes_thrash_possible_without_better_times() -> None:
    found = judged(signals(**LOW | EVICTED))
    cause = found.causes[0]
    assert (cause.key, cause.confidence) == ("3b.thrash", Confidence.POSSIBLE)
    assert (cause.value, cause.threshold) == (pytest.approx(0.8), 0.5)
    assert (cause.samples, cause.counted) in ((100, "reuses"), (100, "evictions"))
    assert "within 8 s" in cause.summary
    assert cause.levers[0].title == "gpu_memory_utilization up"


def test_it_stays_possible_however_long_it_is_seen_and_is_not_cleared_by_itself() -> None:
    history = History()
    seen = [diagnose(signals(**LOW | EVICTED), SLOS, history).node("3b.thrash") for _ in range(8)]
    assert [node.firing for node in seen] == [False, *[True] * 7]
    assert {node.confidence for node in seen[1:]} == {Confidence.POSSIBLE}


@pytest.mark.parametrize(
    "other",
    [{"reuse_gap_p90": 1.0}, {"reuse_gap_p90": None}, {"evict_idle_p50": None}],
    ids=str,
)
def test_reuse_long_before_eviction_or_none_at_all_is_no_sign_of_thrash(
    other: dict[str, float | None],
) -> None:
    node = judged(signals(**LOW | EVICTED | other)).node("3b.thrash")
    assert node.state is State.CANT_TELL


def test_a_few_evictions_are_no_sign() -> None:
    seen = signals(**LOW | EVICTED)
    few = {name: replace(seen[name], samples=9) for name in EVICTED}
    node = judged(replace(seen, readings={**seen.readings, **few})).node("3b.thrash")
    assert node.state is State.CANT_TELL


def test_vllms_residency_metrics_are_read() -> None:
    """Ten reuses within 5 to 10 s, ten evictions after as long."""

    def page(count: int) -> str:
        return "vllm:num_requests_running 1\n" + "".join(
            f'vllm:kv_block_{name}_seconds_bucket{{le="5"}} 0\n'
            f'vllm:kv_block_{name}_seconds_bucket{{le="10"}} {count}\n'
            f'vllm:kv_block_{name}_seconds_bucket{{le="+Inf"}} {count}\n'
            for name in ("reuse_gap", "idle_before_evict")
        )

    source = RecordedSource([(1_800_000_000.0 + 15 * i, page(10 * i)) for i in range(5)])
    found = collect(source, window_s=60.0, at_s=source.now_s)
    assert found.value("reuse_gap_p90") == pytest.approx(9.5)
    assert found.value("evict_idle_p50") == pytest.approx(7.5)
    assert found["evict_idle_p50"].samples == 40


def test_where_waiting_requests_are_not_split_the_release_that_does_it_is_named() -> None:
    look = signals(breakdowns={"waiting_by": {}})
    node = diagnose(look, SLOS).node("3a.deferred")
    assert node.state is State.CANT_TELL
    assert node.how_to_get == how_to_get("waiting_by")
    assert "vLLM exports it from 0.20 on" in node.how_to_get
