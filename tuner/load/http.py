"""A small HTTP/1.1 client for load: one POST at a time on a connection, connections kept alive.

Proxies are ignored, redirects not followed. Invariant: whoever closes a connection takes it out of
the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from tuner.load.connection import (
    Answer,
    Connection,
    ConnectionLostError,
    ConnectTimeoutError,
    HttpError,
)
from tuner.load.limits import OUT_OF_FILES

PATH_SAFE = "/%:@!$&'()*+,;=~"


class HttpClient:
    """Connections to one server. resolve() first; close() ends all of them at once."""

    def __init__(self, url: str, connect_timeout_s: float) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        secure = parts.scheme == "https"
        self._port = parts.port or (443 if secure else 80)
        self._tls = ssl.create_default_context() if secure else None
        self._connect_timeout_s = connect_timeout_s
        self._addresses: list[str] = []
        self.loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._connections: set[Connection] = set()

    def joined(self, connection: Connection) -> None:
        self._connections.add(connection)

    def rests(self, connection: Connection) -> None:
        self._idle.append(connection)

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    def _take(self) -> Connection | None:
        """An idle connection, the last used first."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def resolve(self) -> None:
        """Look the host's addresses up, once; OSError where there are none."""
        found = await self.loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        self._addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))

    async def post(self, request: bytes, answer: Answer) -> None:
        """One exchange; OSError and HttpError when it fails. A cancelled one closes its connection.

        Sent at once where a connection is idle, otherwise after connecting.
        """
        connection = self._take() or await self._connect(answer)
        try:
            await connection.send(request, answer)
        except ConnectionLostError as lost:
            if not lost.stale:
                raise
        except asyncio.CancelledError:
            connection.drop()
            raise
        else:
            return
        answer.retries += 1
        connection = await self._connect(answer)  # a fresh one: what it tells is the server's word
        try:
            await connection.send(request, answer)
        except asyncio.CancelledError:
            connection.drop()
            raise

    def check_times(self) -> None:
        """End what has run out of time; to be called now and again."""
        now_s = time.monotonic()
        for connection in list(self._connections):
            if connection.answer is not None and (error := connection.answer.overdue(now_s)):
                connection.fail(error)

    async def close(self) -> None:
        for connection in list(self._connections):
            connection.drop()
        await asyncio.sleep(0)

    async def _connect(self, answer: Answer) -> Connection:
        began_s = time.monotonic()
        connection = await self._reach()
        answer.connect_s += time.monotonic() - began_s
        return connection

    async def _reach(self) -> Connection:
        """The address that worked last comes first; each gets its share of the time."""
        addresses = list(self._addresses)
        each_s = self._connect_timeout_s / len(addresses)
        error: Exception = HttpError(f"{self._host} has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(each_s):
                    _, connection = await self.loop.create_connection(
                        lambda: Connection(self), address, self._port, ssl=self._tls,
                        server_hostname=self._host if self._tls else None,
                    )  # fmt: skip
            except TimeoutError:
                error = ConnectTimeoutError(f"no connection within {self._connect_timeout_s:g} s")
            except OSError as reason:
                error = reason
                if reason.errno in OUT_OF_FILES:
                    break
            else:
                if address != self._addresses[0]:
                    self._addresses = [address, *(a for a in addresses if a != address)]
                return connection
        raise error


def request_head(url: str, headers: Mapping[str, str]) -> bytes:
    """The head of every POST to url, up to the length of its body."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    lines = [f"POST {quote(parts.path, safe=PATH_SAFE)} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")


def request_bytes(head: bytes, body: bytes) -> bytes:
    return b"%b%d\r\n\r\n%b" % (head, len(body), body)
