"""Opens URLs with one deadline for the whole answer.

urllib's own timeout begins anew with every byte, so that a server which drips keeps a caller for
ever. Invariant: from the moment a request is sent, status, headers and body together take no
longer than its timeout.
"""

from __future__ import annotations

import io
import socket
import time
import urllib.request
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def opener() -> urllib.request.OpenerDirector:
    """Goes through no proxy and follows no redirect, so that an API key reaches nobody but the
    server it was given for. What takes too long is a TimeoutError, from open() or from read()."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _HttpHandler, _HttpsHandler, _NoRedirects
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Bytes(io.RawIOBase):
    """What a socket receives until the deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)
        self._timeout_s = connection.gettimeout()
        self._began_s = time.monotonic()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        if self._timeout_s is None:
            return self._raw.readinto(buffer)
        try:
            left_s = self._timeout_s - (time.monotonic() - self._began_s)
            if left_s <= 0:
                raise TimeoutError
            self._connection.settimeout(left_s)
            return self._raw.readinto(buffer)
        except TimeoutError:
            raise TimeoutError(f"no whole answer within {self._timeout_s:g} s") from None

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *words: Any, **more: Any) -> None:
        super().__init__(sock, *words, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_Bytes(sock))


class _HttpConnection(HTTPConnection):
    response_class = _Response


class _HttpsConnection(HTTPSConnection):
    response_class = _Response


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_HttpConnection, request)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_HttpsConnection, request)
