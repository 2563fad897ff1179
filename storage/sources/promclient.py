"""Speaks to a Prometheus server through prometheus-api-client, with every fault fenced.

The session is ours: three seconds, one retry, no proxies of the environment. Every query carries an
explicit time. Whatever the server or the library does wrong leaves as QueryError, one sentence.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from storage.sources import promql
from storage.sources.matrix import Matrix, Vector

TIMEOUT_S = 3.0
_PART = "slotune_part"
_UNREADABLE = (KeyError, TypeError, ValueError, RecursionError)
"""What JSON of another form, or nested without end, raises where it is read."""


class QueryError(Exception):
    """Prometheus did not answer or answered nonsense; the message says which."""


class PrometheusClient:
    """One server. Threads take turns: the library's session is not made for several at once."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._lock = threading.Lock()
        self._connect: PrometheusConnect | None = None

    def close(self) -> None:
        with self._lock:
            if self._connect is not None:
                self._connect.close()
                self._connect = None

    def parts(self, *queries: str, now_s: float) -> list[float] | None:
        """The single values of several queries in one request; None unless all have one."""
        joined = " or ".join(
            f'label_replace({query}, "{_PART}", "{index}", "", "")'
            for index, query in enumerate(queries)
        )
        found = {labels.get(_PART): value for labels, value in self.vector(joined, now_s)}
        values = [found.get(str(index)) for index in range(len(queries))]
        return None if any(v is None for v in values) else [v for v in values if v is not None]

    def vector(self, query: str, now_s: float | None = None) -> Vector:
        """(labels, value) of an instant query."""
        params = {"time": f"{time.time() if now_s is None else now_s:.3f}"}
        found = self.call(lambda client: client.custom_query(query, params=params))
        try:
            return [(dict(row["metric"]), float(row["value"][1])) for row in found]
        except (KeyError, TypeError, ValueError, IndexError) as fault:
            raise QueryError(f"{self._url} answers in an unknown form") from fault

    def matrix(self, selected: str, window_s: float, now_s: float) -> Matrix:
        """(labels, [(Unix seconds, value)]) of the raw samples in a window."""
        query = f"{selected}[{promql.duration(window_s)}]"
        params = {"time": f"{now_s:.3f}"}
        return self._points(lambda client: client.custom_query(query, params=params))

    def series(self, query: str, start_s: float, end_s: float, step_s: float) -> Matrix:
        """(labels, [(Unix seconds, value)]) of a range query."""
        # The library rounds its times to whole seconds; params, applied last, carry the exact ones.
        start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, end_s))
        exact = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        step = f"{max(step_s, 0.001):.3f}"
        return self._points(
            lambda client: client.custom_query_range(query, start, end, step, params=exact)
        )

    def _points(self, ask: Callable[[PrometheusConnect], Any]) -> Matrix:
        found = self.call(ask)
        try:
            return [
                (dict(row["metric"]), [(float(t), float(v)) for t, v in row["values"]])
                for row in found
                if row["values"]
            ]
        except _UNREADABLE as fault:
            raise QueryError(f"{self._url} answers in an unknown form") from fault

    def call(self, ask: Callable[[PrometheusConnect], Any]) -> Any:
        """What the library answers; QueryError for everything it can raise."""
        try:
            with self._lock:
                if self._connect is None:
                    self._connect = _connect(self._url)
                return ask(self._connect)
        except requests.Timeout as fault:
            raise QueryError(f"{self._url}: no answer in {TIMEOUT_S:g} s") from fault
        except requests.exceptions.RetryError as fault:
            raise QueryError(f"{self._url} answers with server errors") from fault
        except requests.ConnectionError as fault:
            late = "timed out" in str(fault)  # a late answer comes as this after its retry
            why = f"no answer in {TIMEOUT_S:g} s" if late else "no Prometheus answers there"
            raise QueryError(f"{self._url}: {why}") from fault
        except PrometheusApiClientException as fault:
            raise QueryError(f"{self._url}: {_refusal(str(fault))}") from fault
        except (requests.RequestException, *_UNREADABLE) as fault:
            raise QueryError(f"{self._url} is not a Prometheus server") from fault


def _connect(url: str) -> PrometheusConnect:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise QueryError(f"{url!r} is not an address: give http://HOST:PORT of a Prometheus server")
    session = requests.Session()
    session.trust_env = False
    retry = Retry(total=1, backoff_factor=0.1, status_forcelist=[502, 503, 504])
    return PrometheusConnect(url=url, session=session, retry=retry, timeout=TIMEOUT_S)


def _refusal(text: str) -> str:
    """The server's own words out of the library's message."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return str(json.loads(text[start : end + 1])["error"])
    except _UNREADABLE:
        return " ".join(text.split())[:200]
