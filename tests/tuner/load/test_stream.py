"""What a stream of bytes means: first token, token counts, failures. No server, no clock."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.fake_server import DONE, delta, event, fault, text, usage
from tuner.load.stream import StreamReader
from tuner.records import RequestRecord, from_columns, spread_tokens, to_columns


def read(*pieces: bytes | None) -> RequestRecord:
    """Pieces arrive at 1, 2, 3… s; the body ends with the last."""
    reader = StreamReader(RequestRecord(0, 0.0))
    for at_s, piece in enumerate(pieces, 1):
        reader.feed(piece or b"", at_s)
    reader.end(len(pieces))
    return reader.record


GOOD = (text("a").data, text("b", finish="length").data, usage(2).data, DONE.data)


def test_good_answer() -> None:
    record = read(*GOOD)
    assert (record.state, record.finish_reason) == ("ok", "length")
    assert (record.output_tokens, record.prompt_tokens) == (2, 8)
    assert record.chunk_tokens == [1, 1]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_cut_anywhere_and_with_any_line_end(size: int) -> None:
    body = b"".join(piece or b"" for piece in GOOD).replace(b"\n", b"\r\n")
    record = read(*(body[i : i + size] for i in range(0, len(body), size)))
    assert record.state == "ok"
    assert len(record.chunk_times_s) == 2


def test_last_event_without_blank_line_counts() -> None:
    body = b"".join(piece or b"" for piece in GOOD[:2]).rstrip(b"\n")
    assert read(body).state == "ok"


def test_comments_and_other_fields_are_skipped() -> None:
    record = read(b": keep-alive\n\nevent: x\nid: 3\n\n", *GOOD)
    assert record.state == "ok"


def test_role_and_empty_chunks_are_no_tokens() -> None:
    record = read(
        delta(role="assistant").data, delta(content="").data, delta(content="x").data,
        delta(finish="stop").data, DONE.data,
    )  # fmt: skip
    assert record.state == "ok"
    assert len(record.chunk_times_s) == 1


def test_reasoning_is_a_token_but_no_answer() -> None:
    thought = read(delta(reasoning_content="hm").data, delta(finish="length").data, DONE.data)
    assert thought.state == "ok"
    assert math.isfinite(thought.first_token_s)
    assert math.isnan(thought.first_answer_token_s)
    assert thought.ttfat_s == math.inf
    both = read(delta(reasoning="hm").data, *GOOD)
    assert both.first_answer_token_s >= both.first_token_s
    assert len(both.chunk_times_s) == 3


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ((), "empty"),
        ((DONE.data,), "empty"),
        ((text("").data, usage(0).data, DONE.data), "empty"),
        ((text("a").data,), "before its end"),
        ((text("a").data, fault("out of memory").data, DONE.data), "out of memory"),
        ((event({"object": "error", "message": "boom"}).data,), "boom"),
        ((text("a").data, b"data: {broken\n\n", DONE.data), "JSON"),
        ((b'data: {"choices": [3]}\n\n',), "unknown shape"),
        ((b"data: [1]\n\n",), "unknown shape"),
        ((text("a").data, event({"choices": [], "usage": [1]}).data, DONE.data), "unknown shape"),
        ((event({"usage": {"completion_tokens": "x"}}).data, DONE.data), "unknown shape"),
        ((fault("two\nlines \x1b[31m").data,), "two lines [31m"),
        ((text("a", finish="abort").data, DONE.data), "abort"),
    ],
)
def test_failures(pieces: tuple[bytes | None, ...], says: str) -> None:
    record = read(*pieces)
    assert record.state == "failed"
    assert says in record.error
    assert record.ttft_s == record.e2e_s == record.tpot_s == math.inf


def test_missing_usage_counts_chunks_and_says_so() -> None:
    record = read(text("a").data, text("b").data, text("c", finish="stop").data)
    assert record.output_tokens == 3
    assert not record.counted_by_server


def test_nonsense_counts_are_no_counts() -> None:
    record = read(text("a").data, text("b", finish="stop").data, usage(-4, prompt=-1).data)
    assert (record.output_tokens, record.prompt_tokens) == (2, 0)
    assert not record.counted_by_server


@pytest.mark.parametrize("counts", [(3_000_000_000, 8), (10**30, 8), (2, 10**30)])
def test_counts_that_no_answer_can_hold_fail_it(counts: tuple[int, int]) -> None:
    """They would be spread over gaps: a lie of the server's would fill this machine's memory."""
    record = read(GOOD[0], GOOD[1], usage(*counts).data, DONE.data)
    assert record.state == "failed"
    assert record.error.startswith("the usage tells ")
    assert (record.output_tokens, record.chunk_tokens) == (0, [1, 1])


def test_doubled_usage_is_for_the_cross_check() -> None:
    record = read(GOOD[0], GOOD[1], usage(4).data, DONE.data)
    assert (record.state, record.output_tokens) == ("ok", 4)


def test_tool_calls_are_tokens_of_the_answer() -> None:
    def call(**function: str) -> bytes | None:
        return delta(tool_calls=[{"index": 0, "function": function}]).data

    record = read(
        delta(role="assistant", content=None).data, delta(reasoning_content="think").data,
        call(name="weather", arguments=""), call(arguments='{"in":'), call(arguments='"Rome"}'),
        call(arguments=""), delta(finish="tool_calls").data, usage(4).data, DONE.data,
    )  # fmt: skip
    assert (record.state, record.finish_reason) == ("ok", "tool_calls")
    assert (record.first_token_s, record.first_answer_token_s) == (2, 3)
    assert record.chunk_times_s == [2, 3, 4, 5]


def test_finish_reason_is_one_bounded_line() -> None:
    record = read(text("a", finish="\x1b[31mstop\n" * 1000).data, DONE.data)
    assert record.finish_reason.isprintable()
    assert len(record.finish_reason) <= 300


def test_last_token_ends_the_latency_though_the_connection_stays() -> None:
    record = read(*GOOD)
    record.end_s += 5.0
    assert record.e2e_s == record.chunk_times_s[-1] - record.scheduled_s


@pytest.mark.parametrize(("chunks", "tokens"), [(4, 8), (4, 9), (3, 3), (5, 2), (1, 7)])
def test_tokens_are_spread_evenly_over_chunks(chunks: int, tokens: int) -> None:
    counts = spread_tokens(tokens, chunks)
    assert sum(counts) == tokens
    assert counts[0] >= 1
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("tokens", "chunks", "expected"),
    [
        (5, 5, [1, 1, 1, 1, 1]), (7, 4, [1, 2, 2, 2]), (6, 4, [1, 2, 2, 1]), (3, 1, [3]),
        (2, 4, [1, 1, 0, 0]), (1, 1, [1]), (0, 0, []),
    ],
)  # fmt: skip
def test_a_first_chunk_may_be_known(tokens: int, chunks: int, expected: list[int]) -> None:
    assert spread_tokens(tokens, chunks, first=1) == expected


def test_gaps_of_chunks_with_several_tokens() -> None:
    record = RequestRecord(0, 0.0, chunk_times_s=[1.0, 1.4, 1.6], chunk_tokens=[2, 2, 1])
    np.testing.assert_allclose(record.gaps_s(), [0.2, 0.2, 0.2])
    fewer = RequestRecord(0, 0.0, chunk_times_s=[1.0, 1.5, 2.0], chunk_tokens=[1, 0, 1])
    np.testing.assert_allclose(fewer.gaps_s(), [1.0])


def test_records_survive_columns() -> None:
    records = [
        RequestRecord(0, 0.5, chunk_times_s=[1.0, 2.0], chunk_tokens=[1, 1], state="ok"),
        RequestRecord(1, 0.7, error="x", state="failed", counted_by_server=False),
    ]
    back = from_columns(to_columns(records))
    assert [repr(record) for record in back] == [repr(record) for record in records]
