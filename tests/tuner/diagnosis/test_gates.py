"""Nodes 0 and 1: which figures are not judged at all, and when silence is a stall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storage.sources import RecordedSource
from storage.sources.base import Outcome
from tests.tuner.diagnosis.cases import NOW_S, QUEUE, SLOS, Clause, Slos, signals, without
from tuner.diagnosis import Confidence, Diagnosis, History, Signals, State, collect, diagnose

NOBODY = {"running": 0.0, "running_mean": 0.0, "waiting": 0.0, "running_share": 0.0}
SILENT = {"generated": 0.0, "prompted": 0.0}


def judged(seen: Signals) -> Diagnosis:
    return diagnose(seen, SLOS)


@pytest.mark.parametrize(
    ("planted", "names"),
    [
        ({"prefill": None, "queue": 9.0}, "queue is 6.00 × e2e"),
        ({"queue": None, "prefill": 9.0}, "prefill is 6.00 × e2e"),
        ({"inference": 9.0}, "inference is 6.00 × e2e"),
        ({"queue": 1.0, "prefill": 1.0}, "queue + prefill is 1.33 × e2e"),
        ({"e2e": None, "prefill": -0.1}, "prefill is -0.1 s"),
        ({"e2e": -1.0}, "e2e is -1 s"),
        ({"ttft": -1.0}, "ttft is -1 s"),
        ({"ttft": 1.8e9}, "ttft is 1.8e+09 s on average; the process has run for"),
    ],
)
def test_a_part_that_cannot_be_is_named_and_nothing_is_judged(
    planted: dict[str, float | None], names: str
) -> None:
    found = judged(signals(**planted))
    assert found.node("0").state is State.CRITICAL
    assert names in found.node("0").summary
    assert {node.state for node in found.nodes[1:]} == {State.CANT_TELL}


def test_sglang_tells_no_prefill_and_observes_its_queue_as_it_happens() -> None:
    """Of those that wait now the queue may be longer than the whole of those that finished."""
    told = {"prefill": None, "inference": None}
    for queue, trusted in ((9.0, True), (-3.0, False), (1.8e9, False)):
        seen = replace(signals(**told, queue=queue), dialect="sglang")
        assert (judged(seen).node("0").state is State.OK) is trusted, queue
    assert judged(signals(**told, queue=9.0)).node("0").state is State.CRITICAL


def test_ttft_of_those_that_came_later_may_be_longer_than_the_whole_of_those_before() -> None:
    assert judged(signals(ttft=5.0, ttft_p95=6.0)).node("0").state is State.OK


def test_a_ttft_is_held_against_the_process_that_has_run_for_longest() -> None:
    """One replica has run for five seconds, the other for an hour."""
    seen = signals(ttft=90.0, oldest_start=NOW_S - 3600)
    young = replace(seen, status=replace(seen.status, process_start_s=NOW_S - 5))
    assert judged(young).node("0").state is State.OK
    untold = replace(signals(ttft=90.0), status=young.status)
    assert "the process has run for" in judged(untold).node("0").summary


def test_of_several_models_nothing_is_judged() -> None:
    found = judged(signals(**QUEUE, models=("llama", "qwen")))
    top = found.node("0")
    assert (top.state, top.summary) == (State.WARNING, "2 models mixed: llama, qwen")
    assert "--label model_name=llama" in top.how_to_get
    assert {node.state for node in found.nodes[1:]} == {State.CANT_TELL}


def test_one_of_several_replicas_that_is_down_is_named_and_the_others_are_judged() -> None:
    seen = signals(**QUEUE | {"kv_usage": 0.99})
    targets = (("a:8000", ""), ("b:8000", "connection refused"))
    found = judged(replace(seen, status=replace(seen.status, targets=targets)))
    top = found.node("0")
    assert top.state is State.WARNING
    assert "1 of 2 targets give no metrics (b:8000: connection refused)" in top.summary
    assert found.node("3a.kv").firing
    both = replace(seen.status, targets=(("a:8000", ""), ("b:8000", "")))
    assert judged(replace(seen, status=both)).node("0").state is State.OK


@pytest.mark.parametrize(
    ("waiting_share", "state"),
    [(1 / 12, State.OK), (0.25, State.WARNING), (1.0, State.CRITICAL)],
)
def test_a_request_that_has_just_come_is_no_stall(waiting_share: float, state: State) -> None:
    """At one of twelve scrapes it waits; at three, 15 s of a minute; at all of them."""
    seen = signals(**NOBODY | SILENT | {"waiting": 1.0, "waiting_share": waiting_share})
    assert judged(seen).node("1").state is state


@pytest.mark.parametrize(
    ("running_share", "state"), [(0.05, State.OK), (0.5, State.WARNING), (1.0, State.CRITICAL)]
)
def test_a_prompt_that_is_being_read_after_an_idle_minute_is_no_stall(
    running_share: float, state: State
) -> None:
    seen = without(
        signals(**SILENT, running_share=running_share), "step_tokens", outcome=Outcome.NO_TRAFFIC
    )
    assert judged(seen).node("1").state is state


def test_silence_that_was_not_watched_does_not_count() -> None:
    """The window is as long as four scrapes, the target has been watched for a moment."""
    seen = without(signals(**SILENT), "step_tokens", outcome=Outcome.NO_TRAFFIC)
    seen = replace(seen, status=replace(seen.status, watched_s=4.0))
    node = judged(seen).node("1")
    assert (node.state, node.missing) == (State.CANT_TELL, ("a longer window",))


@pytest.mark.parametrize("name", ["prompted", "running_share", "waiting_share"])
def test_silence_that_cannot_be_seen_is_not_judged(name: str) -> None:
    silent = judged(without(signals(**SILENT), name)).node("1")
    assert (silent.state, silent.missing) == (State.CANT_TELL, (f"vllm:{name}",))
    assert judged(without(signals(), name)).node("1").state is State.OK  # tokens came


def page(running: float, waiting: float, tokens: float) -> str:
    return (
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
        f"vllm:generation_tokens_total {tokens}\nvllm:prompt_tokens_total {tokens}\n"
    )


@pytest.mark.parametrize(
    ("waits", "state"), [(1, State.OK), (4, State.WARNING), (13, State.CRITICAL)]
)
def test_how_long_requests_were_there_is_read_from_the_scrapes(waits: int, state: State) -> None:
    pages = [(1000.0 + 5 * i, page(0, float(i > 12 - waits), 50)) for i in range(13)]
    seen = collect(RecordedSource(pages), window_s=60.0, at_s=pages[-1][0])
    assert diagnose(seen).node("1").state is state


STALLED: dict[str, Any] = {**SILENT, "finished": 0.0}


def test_what_no_request_is_counted_for_is_sure_only_after_several_looks() -> None:
    for key, planted in (("1", STALLED), ("0", {"age_s": 60.0})):
        seen = signals(**planted)
        assert judged(seen).node(key).confidence is Confidence.LIKELY
        history = History()
        looks = [diagnose(seen, SLOS, history).node(key).confidence for _ in range(3)]
        assert looks[-1] is Confidence.HIGH
        assert Confidence.HIGH not in looks[:-1]


def test_errors_that_cannot_be_told_are_counted_beside_the_calm_ones() -> None:
    node = judged(without(signals(), "rejections")).node("2")
    assert (node.state, node.summary) == (State.OK, "no leaf fires; 1 cannot be told")


@pytest.mark.parametrize(("metric", "name"), [("total_tps", "prompted"), ("rps", "finished")])
def test_a_throughput_whose_counter_is_not_exported_cannot_be_told(metric: str, name: str) -> None:
    slos = Slos((Clause(metric, 1e9, "", ">"),))
    busy = {"waiting": 5.0, "kv_usage": 0.8}
    assert diagnose(signals(**busy), slos).node("5").state is State.WARNING
    node = diagnose(without(signals(**busy), name), slos).node("5")
    assert (node.state, node.missing) == (State.CANT_TELL, (f"vllm:{name}",))


@pytest.mark.parametrize(
    ("window_s", "standing", "stepping"),
    [
        (5.0, State.CANT_TELL, State.CANT_TELL),
        (20.0, State.WARNING, State.OK),  # a long prompt, read in many steps
        (60.0, State.CRITICAL, State.CRITICAL),
    ],
)
def test_silence_is_a_stall_only_after_a_while(
    window_s: float, standing: State, stepping: State
) -> None:
    silent = replace(signals(generated=0.0, prompted=0.0, finished=0.0), window_s=window_s)
    assert diagnose(silent, SLOS).node("1").state is stepping
    silent = without(silent, "step_tokens", outcome=Outcome.NO_TRAFFIC)
    assert diagnose(silent, SLOS).node("1").state is standing
