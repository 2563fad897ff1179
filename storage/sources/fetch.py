"""One GET of /metrics, bounded in time and size; a sentence for everything that is not metrics.

Proxies of the environment are not used: a target is asked where it is.
"""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from urllib.parse import urlunsplit

from storage.address import split
from storage.errors import StorageError
from storage.sources.base import Outcome
from storage.sources.exposition import Exposition, NotAnExpositionError, parse_exposition

TIMEOUT_S = 3.0
MAX_BYTES = 32 * 1024 * 1024
MAX_SERIES = 100_000
"""A hundred times what an engine exports: more would keep a reader busy for longer than a scrape
may take, each time."""

_CHUNK_BYTES = 256 * 1024
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class FetchError(StorageError):
    """outcome: UNREACHABLE when nobody answered, NO_DATA when the answer holds no metrics."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def scrape_once(url: str, *, timeout_s: float = TIMEOUT_S) -> Exposition:
    """The metrics of a target now. url: its base, /v1 or /metrics URL. Raises StorageError."""
    address = metrics_url(url)
    at_s = time.time()
    text = _get(address, timeout_s)
    if text.lstrip()[:1] in ("<", "{"):
        raise FetchError(Outcome.NO_DATA, f"{address} answers with a page that holds no metrics")
    try:
        found = parse_exposition(text, at_s)
    except NotAnExpositionError as fault:
        raise FetchError(Outcome.NO_DATA, f"{address} holds no metrics: {fault}") from fault
    if len(found.values) > MAX_SERIES:
        raise FetchError(
            Outcome.NO_DATA,
            f"{address} exports {len(found.values)} series; at most {MAX_SERIES} are read",
        )
    return found


def metrics_url(url: str) -> str:
    """`host:8000`, `http://host:8000/v1` → `http://host:8000/metrics`. Raises FetchError."""
    try:
        parts = split(url)
    except ValueError as fault:
        raise FetchError(Outcome.UNREACHABLE, str(fault)) from None
    path = parts.path.rstrip("/")
    if not path.endswith("/metrics"):
        path = path.removesuffix("/v1") + "/metrics"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _get(address: str, timeout_s: float) -> str:
    request = urllib.request.Request(
        address, headers={"Accept": "text/plain;version=0.0.4,*/*;q=0.1"}
    )
    deadline_s = time.monotonic() + timeout_s
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return _read(response, address, deadline_s)
    except urllib.error.HTTPError as fault:
        outcome = Outcome.NO_DATA if fault.code < 500 else Outcome.UNREACHABLE
        raise FetchError(outcome, f"{address} answers HTTP {fault.code}") from fault
    except (OSError, HTTPException, ValueError) as fault:
        raise FetchError(Outcome.UNREACHABLE, f"{address}: {_why(fault)}") from fault


def _read(response: HTTPResponse, address: str, deadline_s: float) -> str:
    parts: list[bytes] = []
    size = 0
    while chunk := response.read1(_CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_BYTES:
            limit = f"{MAX_BYTES // 2**20} MiB"
            raise FetchError(Outcome.NO_DATA, f"{address} answers with more than {limit}")
        if time.monotonic() > deadline_s:
            raise TimeoutError
    if response.length:
        raise HTTPException("the answer broke off")
    return b"".join(parts).decode("utf-8", errors="replace")


def _why(fault: BaseException) -> str:
    origin = fault.reason if isinstance(fault, urllib.error.URLError) else fault
    if isinstance(origin, ConnectionRefusedError):
        return "connection refused; is the server running?"
    if isinstance(origin, TimeoutError):
        return "no answer in time"
    if isinstance(origin, socket.gaierror):
        return "the host name is unknown"
    return str(origin) or type(origin).__name__
