"""The fast path reads what the full parser reads, on any event and however the body is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.load.shape import Shape, learn
from tuner.load.sse import MAX_EVENT_BYTES, EventCutter
from tuner.load.stream import StreamReader
from tuner.records import RequestRecord

TEXTS = st.one_of(
    st.sampled_from(
        ["", " a", "x", "choices", "text", '"', "\\", "\n\n", "é", "🙂", "\x7f", "a\x1f"]
    ),
    st.text(max_size=6),
)
FINISH = st.sampled_from([None, None, None, "stop", "length", "abort"])


def read(body: bytes, sizes: list[int], *, fast: bool) -> tuple[RequestRecord, str]:
    """All pieces arrive at one time, so that records do not depend on how the body is cut."""
    reader = StreamReader(RequestRecord(0, 0.0), keep_text=True, fast=fast)
    at, turn = 0, 0
    while at < len(body):
        size = sizes[turn % len(sizes)]
        reader.feed(body[at : at + size], 1.0)
        at, turn = at + size, turn + 1
    reader.end(2.0)
    return reader.record, reader.text


def chunk(choice: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "c-1", "object": "chunk", "model": "a", "choices": [choice], **more}


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["text", "chat", "both", "thought", "usage", "odd"]))
    text, finish = draw(TEXTS), draw(FINISH)
    if kind == "text":
        return chunk({"index": 0, "text": text, "logprobs": None, "finish_reason": finish})
    if kind == "chat":
        return chunk({"index": 0, "delta": {"content": text}, "finish_reason": finish}, usage=None)
    if kind == "thought":
        return chunk({"delta": {"content": None, "reasoning_content": text}})
    if kind == "both":
        return chunk({"text": text, "delta": {"content": draw(TEXTS), "reasoning": draw(TEXTS)}})
    if kind == "usage":
        usage = {"prompt_tokens": 3, "completion_tokens": draw(st.integers(-1, 9))}
        return chunk({"text": text}, usage=usage)
    return draw(
        st.sampled_from(
            [
                {"choices": []},
                {"choices": [{"text": text}, {"text": "b"}]},
                {"error": {"message": text or "boom"}},
                chunk({"text": text, "logprobs": {"tokens": [text, text]}}),
                chunk({"text": 5}),
                {"choices": [{"delta": [text]}]},
            ]
        )
    )


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Streams whose events repeat their shape, with everything that may stand between them."""
    spaced = draw(st.booleans())
    ascii_only = draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    shapes = draw(st.lists(messages(), min_size=1, max_size=3))
    parts = []
    for _ in range(draw(st.integers(1, 12))):
        form = draw(st.sampled_from(["same", "same", "same", "new", "comment", "lines", "raw"]))
        message = draw(messages()) if form == "new" else draw(st.sampled_from(shapes))
        if form == "same" and message["choices" if "choices" in message else "error"]:
            message = json.loads(json.dumps(message))
            choice = (message.get("choices") or [{}])[0]
            if isinstance(choice.get("text"), str):
                choice["text"] = draw(TEXTS)
            elif isinstance(choice.get("delta"), dict):
                for key in choice["delta"]:
                    choice["delta"][key] = draw(TEXTS)
        separators = (", ", ": ") if spaced else (",", ":")
        text = json.dumps(message, ensure_ascii=ascii_only, separators=separators)
        if form == "comment":
            parts.append(f": ping{end}{end}")
        if form == "raw":
            parts.append(
                draw(st.sampled_from(["data: {bro", "data:", "data: [DONE]", "id: 4", ""]))
            )
        elif form == "lines" and spaced:
            parts.append(f"event: x{end}data: " + text.replace(", ", f",{end}data:", 1))
        else:
            parts.append(draw(st.sampled_from(["data: ", "data:"])) + text)
        parts.append(end * draw(st.sampled_from([1, 2, 2, 2, 2, 3])))
    return "".join(parts).encode(errors="replace")


SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@settings(max_examples=400, deadline=None)
@given(bodies(), SIZES)
def test_fast_and_full_parser_agree(body: bytes, sizes: list[int]) -> None:
    fast, slow = read(body, sizes, fast=True), read(body, [len(body)], fast=False)
    assert repr(fast) == repr(slow)


@settings(max_examples=300, deadline=None)
@given(bodies(), st.data())
def test_they_agree_on_broken_bytes(body: bytes, data: st.DataObject) -> None:
    """Bytes of a good stream replaced at random: broken UTF-8, quotes, control characters."""
    broken = bytearray(body)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at] = data.draw(
            st.one_of(st.sampled_from(b'"\\\x00\xff\x80\xc3,:}'), st.integers(0, 255))
        )
    sizes = data.draw(SIZES)
    fast, slow = read(bytes(broken), sizes, fast=True), read(bytes(broken), sizes, fast=False)
    assert repr(fast) == repr(slow)


def event(text: str, more: str = "") -> bytes:
    return b"data: " + json.dumps(chunk({"text": text, "tail": more}), ensure_ascii=False).encode()


def shape_of(sample: bytes, path: tuple[str, ...] = ("text",)) -> Shape | None:
    return learn(sample, json.loads(sample[5:]), path)


@pytest.mark.parametrize("text", [" b", "é", "🙂 x", "{}[],:"])
def test_known_shape_is_read_without_parsing(text: str) -> None:
    shape = shape_of(event(" a"))
    assert shape is not None
    assert shape.text_of(event(text)) == text.encode()


@pytest.mark.parametrize(
    "other",
    [
        event(""),
        event('say "x"'),
        event("back\\slash"),
        event("line\n"),
        event("a", "changed"),
        event("qq").replace(b"qq", b"\xff"),
        event("qq").replace(b"qq", b"\xed\xa0\x80"),
        event("a").replace(b'"text": "a"', b'"text": "a", "text": "b"'),
        event("a").replace(b'"text": "a"', b'"text": "a\x01"'),
        b"data: [DONE]",
        b"",
    ],
)
def test_anything_else_is_parsed_in_full(other: bytes) -> None:
    shape = shape_of(event("a"))
    assert shape is not None
    assert shape.text_of(other) is None


def test_shape_is_found_where_the_text_stands_elsewhere_too() -> None:
    """The model of chunk() is called a, and so is this text."""
    shape = shape_of(event("a", "a"))
    assert shape is not None
    assert shape.head.endswith(b'"text": "')
    assert shape.text_of(event("q", "a")) == b"q"


def test_text_that_needs_escapes_teaches_nothing() -> None:
    assert shape_of(event('"')) is None
    assert shape_of(event("a\n")) is None


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_split_at_every_byte(end: bytes, mark: bytes) -> None:
    body = mark + end.join([b"data: 1", b"data: 2", b"", b": c", b"", b"data: 3", b"", b""])
    whole = b"\n\n".join(_cut(body, len(body)))
    for size in range(1, len(body)):
        assert b"\n\n".join(_cut(body, size)) == whole
    assert whole.split(b"\n\n")[:3] == [b"data: 1\ndata: 2", b": c", b"data: 3"]


def _cut(body: bytes, size: int) -> list[bytes]:
    cutter = EventCutter()
    events = [e for at in range(0, len(body), size) for e in cutter.feed(body[at : at + size])]
    return [e for e in events + cutter.end() if e.strip()]


def test_endless_event_is_refused() -> None:
    reader = StreamReader(RequestRecord(0, 0.0))
    for _ in range(MAX_EVENT_BYTES // 65536 + 1):
        reader.feed(b"x" * 65536, 1.0)
    assert "more than 4 MiB" in reader.record.error


def test_data_of_several_lines() -> None:
    one = read(b'data: {"choices": [\ndata: {"text": "a"}]}\n\n', [9], fast=True)[0]
    assert len(one.chunk_times_s) == 1
    two = read(b'data: {"choices":[{"text":"a"}]}\ndata: [DONE]\n\n', [9], fast=True)[0]
    assert two.state == "ok"


def test_error_event_is_a_failure_whatever_it_holds() -> None:
    record = read(b'event: error\ndata: {"detail": "out of memory"}\n\n', [9], fast=True)[0]
    assert "out of memory" in record.error
