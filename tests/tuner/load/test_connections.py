"""When the HTTP client uses a connection again, sends anew, connects elsewhere, or closes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

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
    until,
)
from tuner.load import connection
from tuner.load.connection import ConnectionLostError, ConnectTimeoutError, HttpError
from tuner.load.http import HttpClient


@pytest.mark.parametrize("answer", [SIZED, CHUNKED])
async def test_connection_is_used_again(answer: bytes) -> None:
    async with server(always(answer)) as made:
        heard = [await made.post() for _ in range(3)]
    assert [h.data for h in heard] == [b"hello"] * 3
    assert all(h.ended and h.status == 200 and h.retries == 0 for h in heard)
    assert heard[0].connect_s > 0
    assert heard[1].connect_s == heard[2].connect_s == 0
    assert made.connections == 1


@pytest.mark.parametrize("word", [b"Connection: close\r\n", b"connection: Close\r\n"])
async def test_announced_close_is_heeded(word: bytes) -> None:
    closing = SIZED.replace(b"Content", word + b"Content")
    async with server(always(closing)) as made:
        assert [(await made.post()).retries for _ in range(2)] == [0, 0]
        assert made.connections == 2


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
    monkeypatch.setattr(connection, "STALE_S", 0.05)

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
