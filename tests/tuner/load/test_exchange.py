"""Time limits, connections and bodies of single requests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tuner.fake_server import (
    DONE,
    HANG,
    FakeServer,
    Reply,
    Step,
    fault,
    steps,
    text,
    usage,
)
from tests.tuner.load.driving import plan, run
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load import generate


def test_total_time_limit() -> None:
    load = run(lambda _, __: steps(text("a"), HANG), "prompt=8,output=2,concurrency=1",
               request_timeout_s=0.3, max_requests=1)  # fmt: skip
    assert load.records[0].error == "no complete answer within 0.3 s"
    assert load.records[0].end_s >= 0.3


def test_limit_between_tokens_starts_with_the_first() -> None:
    def script(index: int, _: dict[str, Any]) -> Reply:
        if index == 0:  # slow to begin, then steady
            return steps(text("a", 1.0), text("b", finish="stop"), DONE)
        return steps(text("a"), text("b", 30.0, finish="stop"), DONE)

    load = run(script, "prompt=8,output=2,concurrency=1", token_timeout_s=0.5, max_requests=2)
    assert load.records[0].ok
    assert load.records[1].error == "no token for 0.5 s after the last"


def test_answer_is_complete_though_its_body_does_not_end() -> None:
    load = run(lambda _, __: steps(text("a", finish="stop"), usage(1), DONE, HANG),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert load.records[0].ok
    assert load.records[0].end_s < 30


def test_endless_answer_ends_once_it_cannot_be_one() -> None:
    flood = Step(data=(text("a").data or b"") * 1000)
    load = run(lambda _, __: Reply((flood,) * 11 + (HANG,)), "prompt=8,output=2,concurrency=1",
               max_requests=1)  # fmt: skip
    (record,) = load.records
    assert record.state == "failed"
    assert record.error == "more than 10000 tokens came where 2 were asked for"


def test_failed_stream_is_not_waited_for() -> None:
    load = run(lambda _, __: steps(text("a"), fault("out of memory"), HANG),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    (record,) = load.records
    assert (record.state, record.error) == ("failed", "error in the stream: out of memory")
    assert record.end_s < 20


def test_connections_are_kept_and_lost_ones_told() -> None:
    with FakeServer() as server:
        load = generate(plan(server, "prompt=8,output=2,concurrency=2", max_requests=20))
        assert server.connections == 2
    assert sum(r.connect_s > 0 for r in load.records) == 2
    with FakeServer(keep_alive=False) as server:
        load = generate(plan(server, "prompt=8,output=2,concurrency=2", max_requests=20))
        assert server.connections >= 20
    assert all(r.ok for r in load.records)
    assert all((r.connect_s > 0) or r.retries == 0 for r in load.records)


def test_failure_in_the_stream_stays_the_reason_when_the_connection_breaks() -> None:
    load = run(lambda _, __: steps(text("a"), Step(0.0, b"data: {broken\n\n"), cut=True),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert "something else than JSON" in load.records[0].error


def test_unreadable_refusal_is_bounded() -> None:
    load = run(lambda _, __: Reply(status=500, raw=b"x" * 5_000_000),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert load.records[0].error.startswith("HTTP 500: xxx")
    assert len(load.records[0].error) <= 300


def test_answer_that_is_no_stream_says_what_it_is() -> None:
    load = run(lambda _, __: Reply(raw=b'{"choices": [{"text": "x"}]}'),
               "prompt=8,output=2,concurrency=1", max_requests=1)  # fmt: skip
    assert "the answer is empty" in load.records[0].error
    assert "text/plain" in load.records[0].error


def test_extra_body_key_and_forced_lengths_reach_the_server() -> None:
    with FakeServer(api_key="secret") as server:
        endpoint = Endpoint(server.url, "fake", api_key="secret", token_ids=True,
                            forced_lengths=True)  # fmt: skip
        wanted = plan(server, "prompt=8,output=5,concurrency=1", max_requests=1,
                      endpoint=endpoint, extra_body={"top_k": 3, "temperature": 0.5})  # fmt: skip
        load = generate(wanted)
    body = server.requests[0]
    assert load.records[0].ok
    assert (body["top_k"], body["temperature"], body["ignore_eos"]) == (3, 0.5, True)
    assert (body["min_tokens"], body["max_tokens"], body["stream"]) == (5, 5, True)


def test_extra_body_may_not_turn_the_stream_off() -> None:
    with pytest.raises(UserError, match="stream"):
        generate(plan(None, "prompt=8,output=5,concurrency=1", extra_body={"stream": False}))
