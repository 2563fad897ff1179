"""What wraps every request: the API key and the http_* metrics. Plain ASGI, no task per request."""

from __future__ import annotations

import hmac
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.metrics.http import UNMATCHED_HANDLER, HttpMetrics
from engine.serve.errors import error_response

OPEN_PATHS = frozenset({"/health", "/metrics"})
"""Answered without the API key: probes and scrapers carry none."""


class ApiKeyMiddleware:
    """Answers 401 to a request without the right `Authorization: Bearer KEY`."""

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        refusal = error_response(
            "wrong or missing API key: send the header 'Authorization: Bearer KEY'",
            status=401,
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = _header(scope["headers"], b"authorization") or b""
        return hmac.compare_digest(given, self._expected)


class HttpMetricsMiddleware:
    """Times each request until its last byte, streams included."""

    def __init__(self, app: ASGIApp, *, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status, response_bytes = 500, 0

        async def observed_send(message: Message) -> None:
            nonlocal status, response_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                response_bytes = _length(message.get("headers", ()))
            await send(message)

        try:
            await self._app(scope, receive, observed_send)
        finally:
            self._metrics.finished(
                method=scope["method"],
                handler=getattr(scope.get("route"), "path", UNMATCHED_HANDLER),
                status=status,
                duration_s=time.perf_counter() - started,
                request_bytes=_length(scope["headers"]),
                response_bytes=response_bytes,
            )


def _header(headers: Any, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key.lower() == name), None)


def _length(headers: Any) -> int:
    value = _header(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else 0
