"""What fooled other load generators, played by a scripted server: each must show in the figures.

Delays are checked in one direction only: a busy machine makes things later, never earlier.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.tuner.fake_server import (
    DONE,
    HANG,
    FakeServer,
    Reply,
    Step,
    answer,
    delta,
    fault,
    refusal,
    steps,
    text,
    tokens,
    usage,
)
from tests.tuner.measure.benching import bench
from tuner.endpoint import Endpoint
from tuner.measure import Sending, measure
from tuner.slo import judge, parse_slos
from tuner.workload import parse_workload


def test_plain_answers() -> None:
    with FakeServer(lambda _, body: answer(body, first_s=0.02, gap_s=0.005)) as server:
        made = bench(server, max_requests=20)
    assert made.counts == {"sent": 20, "ok": 20, "failed": 0, "censored": 0, "warmup": 0}
    assert made.summary["ttft_p50"].value >= 0.02
    assert made.summary["e2e_p50"].value >= 0.035
    assert made.summary["error_rate"].value == 0
    assert made.notes == []
    assert all(len(body["prompt"]) == 8 and body["max_tokens"] == 4 for body in server.requests)


def test_empty_first_chunks_are_not_the_first_token() -> None:
    def script(_: int, __: dict[str, Any]) -> Reply:
        return steps(
            delta(0.005, role="assistant"), delta(content=""), delta(0.3, content="x"),
            delta(finish="stop"), usage(1), DONE,
        )  # fmt: skip

    with FakeServer(script) as server:
        made = bench(server, api="chat", max_requests=2)
    assert made.counts["ok"] == 2
    assert all(record.ttft_s >= 0.3 for record in made.records)
    assert all(record.first_byte_s < record.first_token_s for record in made.records)


def test_reasoning_counts_for_ttft_and_not_for_ttfat() -> None:
    def script(_: int, __: dict[str, Any]) -> Reply:
        return steps(delta(reasoning_content="hm"), delta(0.3, content="x"),
                     delta(finish="stop"), usage(2), DONE)  # fmt: skip

    with FakeServer(script) as server:
        made = bench(server, api="chat", max_requests=2)
    for record in made.records:
        assert record.ttfat_s - record.ttft_s >= 0.28


def test_empty_answers_are_failures() -> None:
    with FakeServer(lambda _, __: steps(text("", finish="stop"), usage(0), DONE)) as server:
        made = bench(server, max_requests=4)
    assert made.counts["failed"] == 4
    assert made.summary["ttft_p50"].value == math.inf


def test_refusals_are_failures_however_fast() -> None:
    def script(index: int, body: dict[str, Any]) -> Reply:
        return refusal() if index % 2 else answer(body)

    with FakeServer(script) as server:
        made = bench(server, slo="ttft_p95<500ms", max_requests=80, duration_s=20)
        found = judge(parse_slos(["ttft_p95<500ms"]), made)
    assert (made.counts["ok"], made.counts["failed"]) == (40, 40)
    assert found.state == "fail"
    assert made.summary["ttft_p95"].value == math.inf
    assert made.summary["output_tps"].n == 40
    failures = made.summary_dict()["failures"]
    assert len(failures) == 1
    assert "HTTP 503" in failures[0][0]
    assert "overloaded" in failures[0][0]


@pytest.mark.parametrize("warmup_s", [0.0, 30.0])
def test_server_that_only_refuses_ends_early_and_fails(warmup_s: float) -> None:
    """Also within the warm-up: its failures are what there is to report."""
    with FakeServer(lambda _, __: refusal()) as server:
        made = bench(server, slo="ttft_p95<500ms", duration_s=60, warmup_s=warmup_s)
        found = judge(parse_slos(["ttft_p95<500ms"]), made)
    assert made.duration_s < 30
    assert (found.state, found.reason) == ("fail", "every request failed")
    assert made.summary["output_tps"].value == 0
    assert "HTTP 503" in made.summary_dict()["failures"][0][0]


def test_refusal_in_unreadable_bytes_is_a_refusal() -> None:
    with FakeServer(lambda _, __: Reply(status=503, raw=b"\xff\xfe\n<b>no")) as server:
        made = bench(server, max_requests=3)
    assert made.counts["failed"] == 3
    assert made.records[0].error.startswith("HTTP 503")
    assert made.records[0].error.endswith("<b>no")


def test_requests_cut_to_the_context_are_said() -> None:
    with FakeServer(max_model_len=64) as server:
        made = bench(server, "prompt=500,output=4,concurrency=1", max_requests=3)
    assert any("3 of 3 requests were cut to the server's context of 64" in n for n in made.notes)


def test_run_within_its_warm_up_says_so() -> None:
    with FakeServer() as server:
        made = bench(server, max_requests=4, warmup_s=30.0)
    assert "all 4 fell into the warm-up" in made.invalid_reason


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (steps(text("a"), fault("out of memory"), DONE), "out of memory"),
        (steps(text("a"), text("b")), "before its end"),
        (steps(text("a"), cut=True), ""),
        (steps(Step(0, b"data: {nonsense\n\n")), "JSON"),
    ],
)
def test_broken_streams_are_failures(reply: Reply, says: str) -> None:
    with FakeServer(lambda _, __: reply) as server:
        made = bench(server, max_requests=3)
    assert made.counts["failed"] == 3
    assert all(says in record.error and record.error for record in made.records)
    assert all(record.http_status == 200 for record in made.records)


def test_timeout_is_a_failure() -> None:
    with FakeServer(lambda _, __: steps(text("a"), HANG)) as server:
        made = bench(server, max_requests=2, sending=Sending(request_timeout_s=0.3))
    assert made.counts["failed"] == 2
    assert "within 0.3 s" in made.records[0].error


def test_several_tokens_in_a_chunk_are_several_gaps() -> None:
    with FakeServer(lambda _, __: tokens(12, gap_s=0.09, per_chunk=3)) as server:
        made = bench(server, "prompt=8,output=12,concurrency=1", max_requests=3)
    record = made.records[0]
    assert record.output_tokens == 12
    assert record.chunk_tokens == [3, 3, 3, 3]
    gaps = record.gaps_s()
    assert len(gaps) == 9
    assert 0.02 < gaps.mean() < 0.09
    assert record.tpot_s == pytest.approx((record.chunk_times_s[-1] - record.first_token_s) / 11)


def test_missing_usage_is_said() -> None:
    with FakeServer(lambda _, __: steps(text("a"), text("b", finish="stop"), DONE)) as server:
        made = bench(server, max_requests=3)
    assert made.counts["ok"] == 3
    assert any("without usage" in note for note in made.notes)


def test_other_lengths_than_asked_for_are_said() -> None:
    with FakeServer(lambda _, __: tokens(2)) as server:
        made = bench(server, max_requests=5)
    assert any(note.startswith("outputs came out at 2 tokens") for note in made.notes)


def test_stalled_server_cannot_hide_its_queue() -> None:
    """One stall of two seconds under open-loop load: later requests were due while it lasted."""

    class Stall:
        def __init__(self) -> None:
            self.until = 0.0

        def __call__(self, index: int, body: dict[str, Any]) -> Reply:
            if index == 10:
                self.until = time.monotonic() + 2.0
            return answer(body, first_s=max(0.0, self.until - time.monotonic()))

    with FakeServer(Stall()) as server:
        made = bench(server, "prompt=8,output=4,rate=50,arrivals=constant", duration_s=3.0)
    slow = [record for record in made.records if record.ttft_s > 0.4]
    assert len(slow) >= 60
    assert made.summary["ttft_p99"].value > 1.8


def test_client_queue_is_part_of_the_latency() -> None:
    """Latency starts at the schedule, not at the send."""
    from tests.tuner.runs import good

    assert good(0, ttft_s=0.5, lag_s=0.4).ttft_s == 0.5


def test_warm_up_is_never_counted() -> None:
    def script(index: int, body: dict[str, Any]) -> Reply:
        return answer(body, first_s=0.6 if index == 0 else 0.0)

    with FakeServer(script) as server:
        endpoint = Endpoint(server.url).probe()
        made = measure(endpoint, parse_workload("prompt=8,output=4,concurrency=1"),
                       duration_s=1.0, warmup_s=0.5)  # fmt: skip
    assert made.counts["warmup"] >= 1
    assert all(record.scheduled_s >= 0.5 for record in made.in_window)
    assert made.records[0].ttft_s >= 0.6


def test_closed_loop_never_exceeds_its_clients() -> None:
    with FakeServer(lambda _, body: answer(body, first_s=0.02)) as server:
        made = bench(server, "prompt=8,output=4,concurrency=3", max_requests=30, duration_s=20)
    assert made.counts["ok"] == 30
    events = [(r.sent_s, 1) for r in made.records] + [(r.end_s, -1) for r in made.records]
    running = most = 0
    for _, change in sorted(events):
        running += change
        most = max(most, running)
    assert most == 3


def cache_metrics(hit_share: float) -> Callable[[], str]:
    """Of 1,000 prompt tokens between the first look and each later one."""
    counters = itertools.chain([(0, 0)], itertools.repeat((1000, round(1000 * hit_share))))

    def metrics() -> str:
        queries, hits = next(counters)
        return (
            "# TYPE vllm:prefix_cache_queries counter\n"
            f'vllm:prefix_cache_queries_total{{engine="0"}} {queries}\n'
            "# TYPE vllm:prefix_cache_hits counter\n"
            f'vllm:prefix_cache_hits_total{{engine="0"}} {hits}\n'
        )

    return metrics


def test_warm_cache_is_flagged() -> None:
    with FakeServer(metrics=cache_metrics(0.9)) as server:
        made = bench(server, max_requests=3)
    assert made.server is not None
    assert made.server.prefix_hit_rate == pytest.approx(0.9)
    assert any("prefix cache served 90%" in note for note in made.notes)


def test_what_conversations_repeat_is_no_warm_cache_and_their_later_turns_are_not_cut() -> None:
    """Four turns of 20 tokens and answers of 4: 144 of 224 prompt tokens were sent before."""
    with FakeServer(metrics=cache_metrics(0.6), max_model_len=4096) as server:
        made = bench(server, "prompt=20,output=4,turns=4,concurrency=2", max_requests=4,
                     duration_s=30)  # fmt: skip
    assert made.server is not None
    assert made.server.prefix_hit_rate == pytest.approx(0.6)
    assert made.counts["ok"] == 16
    assert not [note for note in made.notes if "cache" in note or "cut" in note]
