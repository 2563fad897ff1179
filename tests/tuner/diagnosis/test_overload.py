"""3a.overload: only where what binds cannot be raised, and only after a long enough watch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storage.sources import RecordedSource
from tests.tuner.diagnosis.cases import QUEUE, SLOS, STEPS, reading, signals
from tuner.diagnosis import Diagnosis, Signals, State, collect, diagnose

BUSY = {"idle_s": 0.5, "waiting_growing_s": 400.0}
CAPPED: dict[str, Any] = QUEUE | BUSY | {"running": 64.0}
STARVED: dict[str, Any] = QUEUE | BUSY | {"kv_usage": 0.99}
AT_START = {"gpu_memory_utilization": "0.9", "gpu_memory_utilization_high": "0.9"}
"""As slotune's engine tells it by default: its highest value is the one it was started with."""

HIGHEST = {"max_num_seqs": "64", "max_num_seqs_high": "64"}


def judged(seen: Signals) -> Diagnosis:
    return diagnose(seen, SLOS)


def test_a_cap_below_its_highest_is_raised_whatever_other_knob_is_at_its_own() -> None:
    found = judged(signals(**CAPPED, config=AT_START))
    assert [cause.key for cause in found.causes] == ["3a.seq_cap"]
    node = found.node("3a.overload")
    assert node.state is State.OK
    assert "max_num_seqs 64 can be raised, up to 256" in node.summary


@pytest.mark.parametrize(
    ("key", "planted", "config"),
    [
        ("3a.seq_cap", CAPPED, HIGHEST),
        ("3a.kv", STARVED, AT_START),
        ("3a.kv", STARVED, {"num_gpu_blocks_override": "40", "num_gpu_blocks_override_high": "40"}),
        ("3a.token_budget", QUEUE | BUSY | {"step_tokens": 500.0}, {"chunk_size_high": "512"}),
    ],
)
def test_what_binds_is_at_its_own_highest(
    key: str, planted: dict[str, Any], config: dict[str, str]
) -> None:
    found = judged(signals(**planted, config=config))
    assert [cause.key for cause in found.causes] == ["3a.overload"]
    assert found.node(key).symptom_of == "3a.overload"


def test_of_two_limits_one_that_can_be_raised_is_enough() -> None:
    both = CAPPED | {"preemptions": 9.0}
    below = HIGHEST | {"gpu_memory_utilization": "0.8", "gpu_memory_utilization_high": "0.9"}
    found = judged(signals(**both, config=below))
    assert found.node("3a.seq_cap").firing
    assert found.node("3a.kv").firing
    assert found.node("3a.overload").state is State.OK
    assert judged(signals(**both, config=HIGHEST | AT_START)).node("3a.overload").firing


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"gpu_memory_utilization": "0.9"}, ("gpu_memory_utilization_high",)),
        ({}, ("gpu_memory_utilization", "gpu_memory_utilization_high")),
        ({"num_gpu_blocks_override": "40"}, ("num_gpu_blocks_override_high",)),
    ],
)
def test_a_highest_value_that_is_not_told_is_asked_for(
    config: dict[str, str], names: tuple[str, ...]
) -> None:
    node = judged(signals(**STARVED, config=config)).node("3a.overload")
    assert (node.state, node.missing) == (State.CANT_TELL, names)
    assert all(f"--set {name}=N" in node.how_to_get for name in names)


def test_limits_that_could_not_be_checked_leave_it_open() -> None:
    untold = {"max_num_seqs": "", "chunk_size": ""}
    node = judged(signals(**QUEUE | BUSY, config=untold)).node("3a.overload")
    assert (node.state, node.missing) == (State.CANT_TELL, ("max_num_seqs", "chunk_size"))
    counted = signals(**QUEUE | BUSY, config=untold, breakdowns={"binding": STEPS})
    assert judged(counted).node("3a.overload").state is State.OK


def risen(base: dict[str, Any], grown_s: float, watched_s: float, **config: str) -> Signals:
    """A queue that rises through all that was watched."""
    seen = signals(**base, config=config)
    grew = replace(reading(grown_s, "waiting"), bound="≥", window_s=watched_s)
    return replace(seen, readings={**seen.readings, "waiting_growing_s": grew})


def test_a_queue_that_grows_for_as_long_as_it_was_watched_is_no_calm() -> None:
    node = judged(risen(CAPPED, 13.0, 15.0, **HIGHEST)).node("3a.overload")
    assert (node.state, node.missing) == (State.CANT_TELL, ("a longer watch",))
    assert "rises through all of the 15 s watched; an overload takes 300 s" in node.summary
    assert "--watch-for 10m" in node.how_to_get
    assert judged(risen(CAPPED, 400.0, 450.0, **HIGHEST)).node("3a.overload").firing
    known = signals(**CAPPED | {"waiting_growing_s": 13.0}, config=HIGHEST)
    assert judged(known).node("3a.overload").state is State.OK  # it began 13 s ago


def test_a_short_watch_does_not_keep_a_knob_from_being_raised() -> None:
    assert judged(risen(CAPPED, 13.0, 15.0)).node("3a.overload").state is State.OK
    idle = CAPPED | {"idle_s": 60.0}
    assert judged(risen(idle, 13.0, 15.0, **HIGHEST)).node("3a.overload").state is State.OK


@pytest.mark.parametrize(
    ("queue", "bound"),
    [
        ([3, 5, 4, 8, 7, 9, 12, 11, 15, 14, 16, 19, 18, 22, 21], "≥"),  # with noise
        ([0] * 11 + [4, 9, 15, 21], ""),
        ([9] * 15, ""),
    ],
)
def test_whether_a_queue_rose_throughout_is_read_from_the_scrapes(
    queue: list[int], bound: str
) -> None:
    pages = [
        (1000.0 + i, f"vllm:num_requests_running 4\nvllm:num_requests_waiting {n}\n")
        for i, n in enumerate(queue)
    ]
    seen = collect(RecordedSource(pages), window_s=60.0, at_s=pages[-1][0])
    assert seen["waiting_growing_s"].bound == bound
    assert seen["waiting_growing_s"].window_s == pytest.approx(14.0, abs=1.0)
