"""What of an answer's bytes the HTTP client makes: framing, broken answers, who listens."""

from __future__ import annotations

import pytest

from tests.tuner.load.scripted import (
    CHUNKED,
    REQUEST,
    SIZED,
    Heard,
    Peer,
    always,
    once,
    server,
)
from tuner.load.connection import ConnectionLostError, HttpError
from tuner.load.http import request_bytes, request_head


def test_request_on_the_wire() -> None:
    head, _, body = request_bytes(
        request_head("https://user:x@h:81/a b/v1/completions", {"X": "é"}), b"12"
    ).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /a%20b/v1/completions HTTP/1.1", b"Host: h:81", b"X: \xe9", b"Content-Length: 2",
    ]  # fmt: skip
    assert body == b"12"


@pytest.mark.parametrize("answer", [SIZED, CHUNKED])
async def test_cut_at_every_byte(answer: bytes) -> None:
    async with server(always(*(answer[i : i + 1] for i in range(len(answer))))) as made:
        assert [(await made.post()).data for _ in range(2)] == [b"hello"] * 2


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_body_until_the_close(version: bytes) -> None:
    async with server(once(version + b" 200 OK\r\n\r\nhel", b"lo")) as made:
        assert [(await made.post()).data for _ in range(2)] == [b"hello"] * 2
        assert made.connections == 2


async def test_interim_answers_are_skipped() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with server(always(early + SIZED)) as made:
        heard = await made.post()
        assert (heard.status, heard.data, b"link" in heard.headers) == (200, b"hello", False)
        await made.post()
        assert made.connections == 1


async def test_refusal_without_a_body() -> None:
    async with server(always(b"HTTP/1.1 204 No Content\r\n\r\n")) as made:
        assert [(await made.post()).status for _ in range(2)] == [204, 204]


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([], "closed the connection without an answer"),
        ([b"HTTP/1.1 200"], "before the end of its answer"),
        ([SIZED[:-1]], "before the end of its answer"),
        ([CHUNKED[:-2]], "before the end of its answer"),
        ([b"SSH-2.0 hello\r\n"], "no valid HTTP"),
        ([CHUNKED.replace(b"2\r\nhe", b"zz\r\nhe")], "no valid HTTP"),
        ([b"HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"], "another protocol"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000], "head exceeds 64 KiB"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 4000], "head exceeds 64 KiB"),
    ],
)
async def test_broken_answers(pieces: list[bytes], says: str) -> None:
    async with server(once(*pieces)) as made:
        heard = Heard()
        with pytest.raises(HttpError, match=says):
            await made.client.post(REQUEST, heard)
        assert (heard.ended, heard.retries, made.connections) == (False, 0, 1)


async def test_reset_within_a_body_without_length_is_no_end() -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nhel")
        peer.reset()

    async with server(serve) as made:
        with pytest.raises(ConnectionLostError, match="ConnectionResetError"):
            await made.post()


@pytest.mark.parametrize("answer", [SIZED, b"HTTP/1.1 200 OK\r\n\r\nhello"])
@pytest.mark.parametrize("at", ["head", "body", "end"])
async def test_fault_of_the_one_who_listens_is_raised(answer: bytes, at: str) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    heard = Heard()
    setattr(heard, at, broken)
    async with server(once(answer)) as made:
        with pytest.raises(ZeroDivisionError):
            await made.client.post(REQUEST, heard)
