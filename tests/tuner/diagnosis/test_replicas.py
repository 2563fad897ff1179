"""Uneven replicas: who is to blame, whether the others have room, and what is then a symptom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tuner.diagnosis.cases import PREFILL, QUEUE, SLOW_TPOT, STEPS, signals
from tuner.diagnosis import Diagnosis, Signals, State, diagnose
from tuner.slo import parse_slos

SLOS = parse_slos(["ttft_p95<500ms", "tpot_p95<50ms"])

BUSY = {
    "running_by_replica": {"a": 60.0, "b": 8.0},
    "waiting_by_replica": {"a": 12.0, "b": 0.0},
    "kv_usage_by_replica": {"a": 0.7, "b": 0.1},
    "ttft_by_replica": {"a": 3.0, "b": 0.1},
}
RUNNING = {"running": 68.0, "running_mean": 68.0}
"""Of both together."""

LOADED = BUSY | {"tokens_by_replica": {"a": 8000.0, "b": 2000.0}}
SLOW = BUSY | {"tokens_by_replica": {"a": 4800.0, "b": 5200.0}}
CAPPED = {"binding": STEPS | {"seq_cap": 60.0}}


def judged(parts: dict[str, Any], base: dict[str, Any] = QUEUE, **planted: Any) -> Diagnosis:
    look: dict[str, Any] = {**RUNNING, **base, **planted, "breakdowns": parts}
    return diagnose(signals(**look), SLOS)


@pytest.mark.parametrize(("key", "parts"), [("7.load", LOADED), ("7.slow", SLOW)])
def test_what_one_replica_suffers_from_is_a_symptom_of_it(key: str, parts: dict[str, Any]) -> None:
    diagnosis = judged(parts | CAPPED, preemptions=9.0)
    assert [cause.key for cause in diagnosis.causes] == [key]
    assert diagnosis.node("3a.seq_cap").symptom_of == key
    assert diagnosis.node("6").symptom_of == key
    assert diagnosis.node(key).levers[0].knob.startswith("the router's policy")
    assert "b has room (8 run, 0 wait)" in diagnosis.node(key).summary


def test_a_limit_that_every_replica_reached_is_the_cause() -> None:
    full = LOADED | {"waiting_by_replica": {"a": 12.0, "b": 9.0}}
    diagnosis = judged(full | CAPPED)
    assert "3a.seq_cap" in [cause.key for cause in diagnosis.causes]
    assert not diagnosis.node("7.load").firing
    assert "no other is known to have room" in diagnosis.node("7.load").summary


def test_a_replica_with_full_kv_has_no_room() -> None:
    full = LOADED | {"kv_usage_by_replica": {"a": 0.97, "b": 0.97}}
    assert not judged(full | CAPPED).node("7.load").firing


def test_a_slow_replica_explains_latency_that_no_leaf_does() -> None:
    diagnosis = judged(SLOW, SLOW_TPOT)
    assert diagnosis.node("4").symptom_of == "7.slow"
    diagnosis = judged(SLOW, SLOW_TPOT, itl_p50=0.02, itl_p99=0.3, step_tokens_p99=500.0)
    assert diagnosis.node("4.interference").symptom_of == ""  # every replica's, not the slow one's


def test_all_above_a_leaf_that_a_slow_replica_explains_is_its_symptom() -> None:
    """TTFT, its prefill, and the arithmetic that prefill waits for."""
    diagnosis = judged(SLOW, PREFILL, flops=1.8e13)  # of two devices
    assert diagnosis.node("3b.compute").firing
    assert [cause.key for cause in diagnosis.causes] == ["7.slow"]
    assert [diagnosis.node(key).symptom_of for key in ("3", "3b", "3b.compute")] == ["7.slow"] * 3


def test_without_the_tokens_of_each_replica_nobody_is_blamed() -> None:
    diagnosis = judged(BUSY)
    assert diagnosis.node("7").firing
    assert diagnosis.node("7.load").state is State.CANT_TELL
    assert diagnosis.node("7.slow").state is State.CANT_TELL
    assert diagnosis.node("7.load").how_to_get


def answered(look: Signals, **requests: int) -> Signals:
    """The same look with so many requests behind the replicas' mean TTFT."""
    parts = look.breakdowns["ttft_by_replica"]
    fewer = {name: replace(parts[name], samples=n) for name, n in requests.items()}
    ttft = {**parts, **fewer}
    return replace(look, breakdowns={**look.breakdowns, "ttft_by_replica": ttft})


def test_one_request_on_each_of_two_replicas_is_no_uneven_load() -> None:
    idle = {"running": 0.0, "waiting": 0.0, "kv_usage": 0.01}
    parts = {f"{name}_by_replica": {"a": v, "b": v} for name, v in idle.items()}
    parts |= {"tokens_by_replica": {"a": 90.0, "b": 110.0},
              "ttft_by_replica": {"a": 2.0, "b": 0.1}}  # fmt: skip
    look = signals(breakdowns=parts)
    assert diagnose(look, SLOS).node("7").state is State.CRITICAL
    assert not diagnose(answered(look, a=1, b=1), SLOS).node("7").firing
    assert not diagnose(answered(look, a=2, b=90), SLOS).node("7").firing
    slow = diagnose(answered(signals(breakdowns=SLOW), a=2), SLOS).node("7.slow")
    assert slow.state is State.CANT_TELL
    assert "a answered fewer than 3 requests" in slow.summary


def test_the_cap_is_that_of_all_replicas() -> None:
    """64 sequences of two replicas with max_num_seqs 64 each are half of what may run."""
    even = {f"{k}_by_replica": {"a": v, "b": v} for k, v in (("running", 32.0), ("waiting", 6.0))}
    one, two = judged({}, running=64.0), judged(even, running=64.0)
    assert one.node("3a.seq_cap").firing
    assert not two.node("3a.seq_cap").firing


@pytest.mark.parametrize("parts", [LOADED, SLOW])
@pytest.mark.parametrize("signal", ["kv_usage", "ttft", "waiting"])
def test_a_replica_without_a_reading_has_no_known_room(parts: dict[str, Any], signal: str) -> None:
    """No data is not a 0: it neither answers sooner nor has blocks free."""
    name = f"{signal}_by_replica"
    diagnosis = judged(parts | {name: {"a": parts[name]["a"]}} | CAPPED)
    assert not diagnosis.node("7.load").firing
    assert not diagnosis.node("7.slow").firing
    assert "b has room" not in diagnosis.node("7.load").summary + diagnosis.node("7.slow").summary


def test_a_replica_that_is_measured_to_do_nothing_needs_no_ttft() -> None:
    idle = LOADED | {"ttft_by_replica": {"a": 3.0}, "tokens_by_replica": {"a": 8000.0, "b": 0.0}}
    assert "b has room" in judged(idle | CAPPED).node("7.load").summary
    assert judged(idle | CAPPED).node("7.load").firing


@pytest.mark.parametrize("key", ["7.load", "7.slow"])
def test_a_share_is_told_only_where_every_replicas_tokens_are_known(key: str) -> None:
    three = {name: values | {"c": 0.0} for name, values in LOADED.items()}
    del three["tokens_by_replica"]["c"]
    node = judged(three | CAPPED).node(key)
    assert node.state is State.CANT_TELL
    assert "tokens_by_replica of c is not known" in node.summary
    assert node.how_to_get


def test_a_replica_without_ttft_is_not_told_to_be_quick() -> None:
    """The fullest one gave no first token in the window."""
    node = judged(SLOW | {"ttft_by_replica": {"b": 0.1}} | CAPPED).node("7.slow")
    assert node.state is State.CANT_TELL
    assert "ttft_by_replica of a is not known" in node.summary
