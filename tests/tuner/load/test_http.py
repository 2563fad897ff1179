"""The HTTP client against servers that are scripted byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import tuner.load.http as http
from tuner.load.http import (
    ConnectionLostError,
    ConnectTimeoutError,
    HttpClient,
    HttpError,
    request_bytes,
    request_head,
)

REQUEST = request_bytes(request_head("http://h/v1/completions", {"A": "b"}), b"{}")
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: t\r\n\r\n"
)


class Heard:
    """An answer that keeps what it is told. limit_s: after that it is overdue."""

    def __init__(self, limit_s: float = 60.0) -> None:
        self.connect_s, self.retries = 0.0, 0
        self.status, self.data, self.ended = 0, b"", False
        self.headers: dict[bytes, bytes] = {}
        self.times: list[float] = []
        self._due_s = time.monotonic() + limit_s

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status, self.headers = status, dict(headers)

    def body(self, data: bytes, at_s: float) -> None:
        self.data += data
        self.times.append(at_s)

    def end(self, at_s: float) -> None:
        self.ended = True

    def overdue(self, at_s: float) -> HttpError | None:
        return HttpError("too late") if at_s > self._due_s else None


Serve = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One connection as the server sees it; number counts from 0."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number, self.reader, self.writer = number, reader, writer

    async def request(self) -> bytes:
        return await self.reader.readexactly(len(REQUEST))

    async def say(self, *pieces: bytes) -> None:
        """Each in a packet of its own, as far as the system lets it."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.001)

    def reset(self) -> None:
        """Close with a TCP reset."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def server(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    made = Server()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, made.connections = made.connections, made.connections + 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(Peer(number, reader, writer))
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
    made.client = HttpClient(f"{scheme}://{host}:{port}", connect_timeout_s=5.0)
    await made.client.resolve()
    try:
        yield made
    finally:
        await made.client.close()
        listening.close()


class Server:
    client: HttpClient
    connections = 0

    async def post(self, limit_s: float = 60.0) -> Heard:
        heard = Heard(limit_s)
        await self.client.post(REQUEST, heard)
        return heard


def always(*pieces: bytes) -> Serve:
    """The same answer to every request, connections stay open."""

    async def serve(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*pieces)

    return serve


def once(*pieces: bytes) -> Serve:
    """One answer, then the connection is closed."""

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(*pieces)

    return serve


def test_request_on_the_wire() -> None:
    head, _, body = request_bytes(
        request_head("https://user:x@h:81/a b/v1/completions", {"X": "é"}), b"12"
    ).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /a%20b/v1/completions HTTP/1.1", b"Host: h:81", b"X: \xe9", b"Content-Length: 2",
    ]  # fmt: skip
    assert body == b"12"


@pytest.mark.parametrize("answer", [SIZED, CHUNKED])
async def test_connection_is_used_again(answer: bytes) -> None:
    async with server(always(answer)) as made:
        heard = [await made.post() for _ in range(3)]
    assert [h.data for h in heard] == [b"hello"] * 3
    assert all(h.ended and h.status == 200 and h.retries == 0 for h in heard)
    assert heard[0].connect_s > 0
    assert heard[1].connect_s == heard[2].connect_s == 0
    assert made.connections == 1


@pytest.mark.parametrize("answer", [SIZED, CHUNKED])
async def test_cut_at_every_byte(answer: bytes) -> None:
    async with server(always(*(answer[i : i + 1] for i in range(len(answer))))) as made:
        assert [(await made.post()).data for _ in range(2)] == [b"hello"] * 2


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_body_until_the_close(version: bytes) -> None:
    async with server(once(version + b" 200 OK\r\n\r\nhel", b"lo")) as made:
        assert [(await made.post()).data for _ in range(2)] == [b"hello"] * 2
        assert made.connections == 2


@pytest.mark.parametrize("word", [b"Connection: close\r\n", b"connection: Close\r\n"])
async def test_announced_close_is_heeded(word: bytes) -> None:
    closing = SIZED.replace(b"Content", word + b"Content")
    async with server(always(closing)) as made:
        assert [(await made.post()).retries for _ in range(2)] == [0, 0]
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


@pytest.mark.parametrize("reset", [False, True])
async def test_closed_keepalive_is_tried_once_more_and_told(reset: bool) -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(SIZED)
        await peer.request()
        if peer.number:
            await peer.say(SIZED)
        elif reset:
            peer.reset()

    async with server(serve) as made:
        assert (await made.post()).retries == 0
        again = await made.post()
        assert (again.data, again.retries, made.connections) == (b"hello", 1, 2)
        assert again.connect_s > 0


async def test_second_refusal_of_a_connection_is_the_servers_word() -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        if not peer.number:
            await peer.say(SIZED)
            await peer.request()

    async with server(serve) as made:
        await made.post()
        heard = Heard()
        with pytest.raises(ConnectionLostError, match="without an answer"):
            await made.client.post(REQUEST, heard)
        assert (heard.retries, made.connections) == (1, 2)


@pytest.mark.parametrize(
    "fault", [b"HTTP/1.1 200 OK\r\n", SIZED[:-1], b"HTTP/1.1 100 Continue\r\n\r\n"]
)
async def test_nothing_is_sent_anew_once_the_server_answers(fault: bytes) -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(SIZED)
        await peer.request()
        await peer.say(fault)

    async with server(serve) as made:
        await made.post()
        with pytest.raises(ConnectionLostError):
            await made.post()
        assert made.connections == 1


async def test_late_close_is_no_stale_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that works on a request and then dies must not get it twice."""
    monkeypatch.setattr(http, "STALE_S", 0.05)

    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(SIZED)
        await peer.request()
        await asyncio.sleep(0.2)

    async with server(serve) as made:
        await made.post()
        with pytest.raises(ConnectionLostError, match="without an answer"):
            await made.post()
        assert made.connections == 1


async def test_connection_that_was_closed_while_idle_is_not_used() -> None:
    async with server(once(SIZED)) as made:
        for number in range(3):
            assert (await made.post()).retries == 0
            await until(lambda: not made.client._connections)
            assert made.connections == number + 1


async def test_word_on_an_idle_connection_closes_it() -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.say(SIZED)
        await peer.say(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await asyncio.sleep(60)

    async with server(serve) as made:
        await made.post()
        await until(lambda: not made.client._connections)
        assert (await made.post()).status == 200


async def test_more_than_the_answer_ends_the_connection() -> None:
    async with server(always(SIZED + b"JUNK")) as made:
        assert [(await made.post()).data for _ in range(2)] == [b"hello"] * 2
        assert made.connections == 2


async def test_every_request_in_flight_has_its_own_connection() -> None:
    waiting = asyncio.Event()

    async def serve(peer: Peer) -> None:
        while True:
            await peer.request()
            await waiting.wait()
            await peer.say(SIZED)

    async with server(serve) as made:
        posts = [asyncio.create_task(made.post()) for _ in range(5)]
        await until(lambda: made.connections == 5)
        waiting.set()
        assert [h.data for h in await asyncio.gather(*posts)] == [b"hello"] * 5
        await made.post()
        assert made.connections == 5


async def test_cancelled_exchange_closes_its_connection() -> None:
    left = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.request()
        with contextlib.suppress(ConnectionError):
            await peer.reader.read()
        left.set()

    async with server(serve) as made:
        post = asyncio.create_task(made.post())
        await until(lambda: made.connections == 1)
        post.cancel()
        with pytest.raises(asyncio.CancelledError):
            await post
        await asyncio.wait_for(left.wait(), 30)


async def test_overdue_answer_is_ended() -> None:
    async def serve(peer: Peer) -> None:
        await peer.request()
        await peer.reader.read()

    async with server(serve) as made:
        post = asyncio.create_task(made.post(limit_s=0.0))
        await until(lambda: made.connections == 1)
        made.client.check_times()
        with pytest.raises(HttpError, match="too late"):
            await post


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


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = HttpClient(f"http://127.0.0.1:{free.getsockname()[1]}", 5.0)
        await client.resolve()
        with pytest.raises(ConnectionRefusedError):
            await client.post(REQUEST, Heard())


async def test_no_connection_within_its_time() -> None:
    """A full queue of connections: Linux lets the next one wait."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        client = HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.2)
        await client.resolve()
        with pytest.raises(ConnectTimeoutError, match=r"no connection within 0\.2 s"):
            await client.post(REQUEST, Heard())


async def test_other_addresses_are_tried_and_the_good_one_kept() -> None:
    async with server(once(SIZED)) as made:
        made.client._addresses = ["127.0.0.2", "127.0.0.1"]
        assert (await made.post()).data == b"hello"
        assert made.client._addresses[0] == "127.0.0.1"


async def test_no_address_answers() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = HttpClient(f"http://127.0.0.1:{free.getsockname()[1]}", 5.0)
        client._addresses = ["127.0.0.2", "127.0.0.1", "127.0.0.3"]
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                await client.post(REQUEST, Heard())


async def test_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with server(always(SIZED)) as made:
        assert (await made.post()).data == b"hello"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl program makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key,
         "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def test_tls(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    async with server(always(CHUNKED), tls) as made:
        with pytest.raises(ssl.SSLCertVerificationError):
            await made.post()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    async with server(always(CHUNKED), tls) as made:
        assert [(await made.post()).data for _ in range(2)] == [b"hello"] * 2
        assert made.connections == 1


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")
