"""An HTTP server that is scripted byte for byte, and what the client's listener hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from tuner.load.connection import HttpError
from tuner.load.http import HttpClient, request_bytes, request_head

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


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")
