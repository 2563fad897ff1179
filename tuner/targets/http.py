"""Small JSON calls to a server's operational routes; never through a proxy, always with a deadline.

A refusal of the server is an HttpRefusalError with its own sentence; silence is a TargetError.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from tuner.deadline import opener
from tuner.targets.base import TargetError

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 << 20
MAX_REASON_BYTES = 1 << 20
_OPENER = opener()


class HttpRefusalError(Exception):
    """The server answered, with an error status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def call(
    url: str,
    body: dict[str, Any] | None = None,
    *,
    api_key: str | None = None,
    method: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """The JSON answer (None when empty or no JSON). Raises HttpRefusalError, TargetError."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            read = response.read(MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise HttpRefusalError(error.code, _reason(error)) from error
    except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TargetError(f"nothing answers at {url} ({reason})") from error
    if len(read) > MAX_ANSWER_BYTES:
        raise TargetError(f"{url} answers with more than {MAX_ANSWER_BYTES >> 20} MiB")
    text = read.decode(errors="replace")
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        return None


def answers(url: str) -> bool:
    """Whether a GET gets a 200 within two seconds."""
    try:
        call(url, timeout_s=2.0)
    except (HttpRefusalError, TargetError):
        return False
    return True


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        text = error.read(MAX_REASON_BYTES).decode(errors="replace")
    except (OSError, HTTPException):  # the connection broke within the reason
        return f"HTTP {error.code}"
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text.strip()[:300] or f"HTTP {error.code}"
