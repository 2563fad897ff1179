"""The planted cause is named first, its symptoms as symptoms, a missing signal as cant_tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from storage.sources.base import Outcome
from tests.tuner.diagnosis.cases import (
    PREFILL,
    QUEUE,
    SLOS,
    SLOW_TPOT,
    SLOW_TTFT,
    STEPS,
    Clause,
    Slos,
    signals,
    without,
)
from tuner.diagnosis import Diagnosis, State, diagnose

PLANTED: list[tuple[str, dict[str, Any]]] = [
    ("0", {"age_s": 60.0}),
    ("0", {"queue": -3.0}),
    ("0", {"queue": 9.0}),
    ("0", {"restart": 1.0}),
    ("0", {"models": ("a", "b")}),
    ("1", {"generated": 0.0, "prompted": 0.0, "finished": 0.0}),
    ("1", {"running": 0.0, "running_mean": 0.0, "running_share": 0.0, "waiting": 3.0,
           "waiting_share": 1.0, "generated": 0.0, "prompted": 0.0}),
    ("2.errors", {"breakdowns": {"finished_by": {"stop": 90.0, "error": 10.0}}}),
    ("2.aborts", {"breakdowns": {"finished_by": {"stop": 80.0, "abort": 20.0}}}),
    ("2.rejections", {"rejections": 5.0}),
    ("2.length", {"breakdowns": {"finished_by": {"stop": 70.0, "length": 30.0}}}),
    ("3a.kv", QUEUE | {"kv_usage": 0.99, "preemptions": 8.0}),
    ("3a.kv", QUEUE | {"breakdowns": {"binding": STEPS | {"kv_pressure": 60.0}}}),
    ("3a.seq_cap", QUEUE | {"running": 64.0, "kv_usage": 0.5}),
    ("3a.seq_cap", QUEUE | {"breakdowns": {"binding": STEPS | {"seq_cap": 60.0, "other": 9.0}}}),
    ("3a.token_budget", QUEUE | {"step_tokens": 500.0}),
    ("3a.token_budget", QUEUE | {"breakdowns": {"binding": STEPS | {"token_budget": 60.0}}}),
    ("3a.compute", QUEUE | {"step_tokens": 500.0, "flops": 6e12}),
    ("4.mixed", SLOW_TPOT | {"itl_p50": 0.1, "itl_p99": 0.15,
                             "breakdowns": {"kind_s": {"mixed": 30.0, "decode": 9.0}}}),
    ("3a.deferred", QUEUE | {"breakdowns": {"waiting_by": {"capacity": 1.0, "deferred": 11.0}}}),
    ("3a.overload", QUEUE | {"running": 256.0, "waiting_growing_s": 400.0, "idle_s": 0.5,
                             "config": {"max_num_seqs": "256"}}),
    ("3a.other", QUEUE | {"prompt_tokens_p99": 2000.0}),
    ("3a.other", QUEUE | {"queue": 0.8, "prefill": 0.3, "step_tokens_p90": 500.0,
                          "breakdowns": {"binding": {"underloaded": 80.0},
                                         "phase_s": {"forward": 40.0}}}),
    ("3b.long_prompt", PREFILL | {"prompt_tokens": 3000.0}),
    ("3b.cache_off", PREFILL | {"config": {"enable_prefix_caching": "False"}}),
    ("3b.thrash", PREFILL | {"kv_usage": 0.93, "hit_rate": 0.1}),
    ("3b.compute", PREFILL | {"flops": 6e12}),
    ("3b.host", PREFILL | {"breakdowns": {"phase_s": {"prepare": 9.0, "forward": 3.0}}}),
    ("3c", {"ttft_p95": 0.9, "ttft_p50": 0.1, "ttft_p99": 1.5, "prompt_tokens_p99": 4096.0}),
    ("3d", SLOW_TTFT | {"queue": 0.02, "prefill": 0.1, "e2e": 3.0, "inference": 1.5}),
    ("3e", {"client_ttft": 1.1, "client_server_ttft": 0.2}),
    ("4.interference", SLOW_TPOT | {"itl_p50": 0.02, "itl_p99": 0.3, "step_tokens_p99": 500.0}),
    ("6", SLOW_TPOT | {"preemptions": 9.0}),
    ("4.bandwidth", SLOW_TPOT | {"read_bytes": 1.6e10}),
    ("4.host", SLOW_TPOT | {"breakdowns": {"phase_s": {"prepare": 9.0, "forward": 3.0}}}),
    ("4.throttled", SLOW_TPOT | {"power_throttle": 3e8}),
    ("5.seq_cap", {"running": 64.0, "waiting": 4.0}),
    ("6", {"preemptions": 6.0}),
    ("7", {"breakdowns": {"running_by_replica": {"a": 30.0, "b": 8.0, "c": 9.0}}}),
]  # fmt: skip


IDS = [f"{key}-{i}" for i, (key, _) in enumerate(PLANTED)]


@pytest.mark.parametrize(("key", "planted"), PLANTED, ids=IDS)
def test_planted_cause_is_named_first(key: str, planted: dict[str, Any]) -> None:
    diagnosis = diagnose(signals(**planted), SLOS)
    assert [cause.key for cause in diagnosis.causes][:1] == [key]
    if key != "0":
        assert diagnosis.node(key).levers


def test_healthy_server_is_not_ill() -> None:
    diagnosis = diagnose(signals(), SLOS)
    assert [node.key for node in diagnosis.nodes if node.firing] == []
    assert diagnosis.severity is State.OK
    assert "load-limited" in diagnosis.node("5").summary


@pytest.mark.parametrize("kv", [0.05, 0.97])
def test_kv_use_alone_is_healthy(kv: float) -> None:
    assert diagnose(signals(kv_usage=kv, kv_usage_mean=kv), SLOS).causes == ()


def test_symptoms_name_their_cause() -> None:
    planted = QUEUE | SLOW_TPOT | {"kv_usage": 0.99, "preemptions": 8.0}
    diagnosis = diagnose(signals(**planted), SLOS)
    causes = {node.key: node.symptom_of for node in diagnosis.symptoms}
    assert causes["6"] == "3a.kv"
    assert causes["4.preemptions"] == "3a.kv"
    assert causes["4"] == "3a.kv"
    assert [node.key for node in diagnosis.causes] == ["3a.kv"]


def test_stall_explains_what_comes_after_it() -> None:
    diagnosis = diagnose(signals(**QUEUE | {"generated": 0.0, "prompted": 0.0}), SLOS)
    assert [node.key for node in diagnosis.causes] == ["1"]
    assert diagnosis.node("3").symptom_of == "1"


def test_what_will_not_help_is_said() -> None:
    node = diagnose(signals(**QUEUE | {"kv_usage": 0.99}), SLOS).node("3a.kv")
    assert "max_num_seqs" in node.will_not_help[0]
    assert node.levers[0].title == "gpu_memory_utilization up"
    assert all(lever.cost and lever.effect for lever in node.levers)


def test_chunk_levers_point_opposite_ways() -> None:
    slow = PREFILL | {"prompt_tokens": 3000.0}
    up = diagnose(signals(**slow), SLOS).node("3b.long_prompt").levers[0]
    mixed = SLOW_TPOT | {"itl_p50": 0.02, "itl_p99": 0.3, "step_tokens_p99": 500.0}
    down = diagnose(signals(**mixed), SLOS).node("4.interference").levers[0]
    assert (up.title, down.title) == ("chunk_size up", "chunk_size down")


MISSING = [
    ("ttft_p95", "3"), ("queue", "3a"), ("kv_usage", "3a.kv"), ("step_tokens", "3a.token_budget"),
    ("prompt_tokens", "3b.long_prompt"), ("flops", "3b.compute"), ("inference", "3d"),
    ("client_ttft", "3e"), ("tpot_p95", "4"), ("itl_p99", "4.interference"),
    ("read_bytes", "4.bandwidth"), ("power_throttle", "4.throttled"), ("waiting", "5"),
    ("preemptions", "6"), ("rejections", "2.rejections"), ("generated", "1"),
    ("prefill", "3d"), ("thermal_throttle", "4.throttled"), ("write_bytes", "4.bandwidth"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "key"), MISSING)
def test_missing_signal_cannot_be_told(name: str, key: str) -> None:
    node = diagnose(without(signals(), name), SLOS).node(key)
    assert node.state is State.CANT_TELL
    assert node.missing
    assert node.how_to_get


@pytest.mark.parametrize("key", ["3a.seq_cap", "3a.token_budget", "5.seq_cap", "3b.long_prompt"])
def test_unknown_caps_cannot_be_told(key: str) -> None:
    bare = signals(config={"max_num_seqs": "", "chunk_size": ""}, **QUEUE)
    node = diagnose(bare, SLOS).node(key)
    assert node.state is State.CANT_TELL
    assert "--set" in node.how_to_get


def test_no_traffic_is_its_own_state() -> None:
    zero = dict.fromkeys(
        ("running", "running_mean", "waiting", "finished", "generated", "prompted"), 0.0
    )
    idle = without(signals(**zero), "ttft", "ttft_p95", "tpot_p95", outcome=Outcome.NO_TRAFFIC)
    diagnosis = diagnose(idle, SLOS)
    assert diagnosis.traffic == "no_traffic"
    assert diagnosis.node("0").state is State.OK
    rest = {node.state for node in diagnosis.nodes if node.key != "0"}
    assert rest == {State.NOT_APPLICABLE}
    assert "No traffic" in diagnosis.headline


@pytest.mark.parametrize("planted", [{"queue": -3.0}, {"age_s": 60.0}, {"up": False}])
def test_distrusted_data_is_discarded(planted: dict[str, Any]) -> None:
    diagnosis = diagnose(signals(**{**QUEUE, **planted}), SLOS)
    assert diagnosis.severity is State.CRITICAL
    assert {node.state for node in diagnosis.nodes[1:]} == {State.CANT_TELL}
    assert all(node.value is None for node in diagnosis.nodes[1:])


def test_without_slo_the_split_is_shown_and_nothing_invented() -> None:
    diagnosis = diagnose(signals(**QUEUE | {"kv_usage": 0.99}))
    node = diagnosis.node("3")
    assert node.state is State.NOT_APPLICABLE
    assert [name for name, _ in node.evidence] == ["queue", "prefill", "front end"]
    assert diagnosis.missing_slos == ("ttft", "tpot or itl")
    assert diagnosis.node("3a").state is State.NOT_APPLICABLE
    assert diagnosis.node("3a").value == pytest.approx(1.6 / 1.9)


def test_server_that_meets_its_slo_has_no_queue_fault() -> None:
    fine = QUEUE | {"ttft_p95": 0.4}
    assert diagnose(signals(**fine), SLOS).node("3a").state is State.OK


def test_throughput_slo() -> None:
    slos = Slos((Clause("output_tps", 500.0, "", ">"),))
    busy = {"waiting": 5.0, "kv_usage": 0.8}
    assert diagnose(signals(**busy), slos).node("5").state is State.WARNING
    assert diagnose(signals(), slos).node("5").state is State.OK  # load-limited


def test_a_queue_that_nothing_explains_is_not_explained() -> None:
    """Equal prompts, one replica, no limit reached: no router, no pool is proposed."""
    diagnosis = diagnose(signals(**QUEUE), SLOS)
    node = diagnosis.node("3a.other")
    assert (node.state, node.levers) == (State.CANT_TELL, ())
    assert "about equal" in node.summary
    assert diagnosis.causes[0].key == "3a"


def test_one_request_is_no_queue_worth_a_router() -> None:
    planted = QUEUE | {"prompt_tokens_p99": 9000.0, "finished": 1.0}
    node = diagnose(signals(**planted), SLOS).node("3a.other")
    assert (node.state, node.levers) == (State.CANT_TELL, ())


def test_a_late_or_busy_server_is_not_merely_waiting_for_load() -> None:
    late = diagnose(signals(**SLOW_TTFT), SLOS)
    assert "not a server problem" not in late.node("5").summary
    assert "SLO is missed" in late.node("5.load_limited").summary
    busy = diagnose(signals(busy_s=59.4, idle_s=0.6), SLOS)
    assert "not a server problem" not in busy.node("5").summary
    assert "busy 99%" in busy.node("5.load_limited").summary


def test_compute_bound_server_is_said_to_be_so() -> None:
    busy = diagnose(signals(busy_s=59.4, idle_s=0.6, flops=6e12), SLOS)
    assert "compute-bound" in busy.node("5").summary


@pytest.mark.parametrize("residual_s", [0.03, 0.09, 0.15, 1.5])
def test_front_end_never_fires_below_the_threshold_it_shows(residual_s: float) -> None:
    for prefill_s in (0.05, 0.3, 1.2, 4.0):
        look = signals(**SLOW_TTFT | {
            "queue": 0.02, "prefill": prefill_s, "inference": 5.0, "e2e": 5.02 + residual_s,
        })  # fmt: skip
        node = diagnose(look, SLOS).node("3d")
        assert node.value is not None
        assert node.threshold is not None
        assert node.firing == (node.value >= node.threshold)


def test_no_firing_node_contradicts_the_threshold_it_shows() -> None:
    for _, planted in PLANTED:
        for node in diagnose(signals(**planted), SLOS).nodes:
            if node.firing and node.value is not None and node.threshold is not None:
                assert {
                    "≥": node.value >= node.threshold, ">": node.value > node.threshold,
                    "≤": node.value <= node.threshold,
                }[node.comparison], node  # fmt: skip


@pytest.mark.parametrize("up", [True, False])
def test_json_round_trip(up: bool) -> None:
    diagnosis = diagnose(signals(**QUEUE | {"kv_usage": 0.99, "preemptions": 4.0}, up=up), SLOS)
    assert diagnosis.up is up
    assert Diagnosis.from_dict(json.loads(json.dumps(diagnosis.as_dict()))) == diagnosis


def test_every_node_of_the_design_is_present() -> None:
    keys = {node.key for node in diagnose(signals()).nodes}
    planted = {key for key, _ in PLANTED}
    parents = {"2", "3", "3a", "3b", "4", "4.preemptions", "5", "5.load_limited"}
    assert planted | parents | {"7.load", "7.slow"} == keys  # the two: test_replicas.py


def test_prefill_that_no_limit_explains_has_a_lever_of_its_own() -> None:
    alone = diagnose(signals(**PREFILL), SLOS)
    assert alone.causes[0].key == "3b"
    assert [lever.direction for lever in alone.node("3b").levers] == ["do"]
    explained = diagnose(signals(**PREFILL | {"prompt_tokens": 3000.0}), SLOS)
    assert explained.causes[0].key == "3b.long_prompt"
    assert not explained.node("3b").levers


def test_parents_come_before_their_leaves() -> None:
    seen: set[str] = {""}
    for node in diagnose(signals()).nodes:
        assert node.parent in seen
        seen.add(node.key)


def test_a_cap_turned_below_what_ran_says_which_is_of_when() -> None:
    """The window still holds the time under the greater cap."""
    look = signals(running=1.0, running_mean=2.4, waiting=9.0, config={"max_num_seqs": "1"})
    assert (
        diagnose(look, SLOS)
        .node("5.seq_cap")
        .summary.startswith("2.4 ran in the window, the cap is now 1, 9.0 wait")
    )
