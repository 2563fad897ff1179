"""Every refusal in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.

Owns the mapping from exceptions to HTTP; no route builds an error body itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from engine.errors import EngineDeadError, RequestError, shown

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    499: "client_closed_request",
    500: "server_error",
    503: "service_unavailable",
}


_MOST_CHARS, _MOST_PARAM_CHARS = 2_000, 200
"""Of a refusal, whatever its request repeats."""


def error_body(
    message: str, *, status: int, param: str | None = None, code: str | None = None
) -> bytes:
    """The JSON body of a refusal."""
    message, param = message[:_MOST_CHARS], param and param[:_MOST_PARAM_CHARS]
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_response(
    message: str,
    *,
    status: int,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return Response(
        error_body(message, status=status, param=param, code=code),
        status_code=status,
        media_type="application/json",
        headers=dict(headers or {}),
    )


def from_exception(error: Exception) -> Response:
    """The response for a refusal or a dead engine."""
    if isinstance(error, RequestError):
        headers = {"Retry-After": "1"} if error.status in (429, 503) else None
        return error_response(
            error.message, status=error.status, param=error.param, code=error.code, headers=headers
        )
    if isinstance(error, EngineDeadError):
        return error_response(error.message, status=error.status, code=error.code)
    return error_response(
        f"internal error: {type(error).__name__}: {error}", status=500, code="internal_error"
    )


def from_validation(error: ValidationError) -> RequestError:
    """The first fault that the request schema found, as one sentence naming the field."""
    fault = error.errors(include_url=False)[0]
    where = [str(part)[:_MOST_PARAM_CHARS] for part in fault["loc"] if not _is_union_branch(part)]
    param = ".".join(where) or None
    reason = fault["msg"][:1].lower() + fault["msg"][1:]
    if fault["type"] == "missing":
        return RequestError(f"{param} is required", param=param, code="missing_required_parameter")
    return RequestError(
        f"{param}: {reason}, got {shown(fault.get('input'))}", param=param, code="invalid_type"
    )


def _is_union_branch(part: Any) -> bool:
    """Pydantic names the tried member of a union in the location, e.g. 'list[str]'."""
    return isinstance(part, str) and (part in ("str", "int", "float") or "[" in part)


def install(app: FastAPI) -> None:
    """Answer every failure of the app in OpenAI's shape."""

    async def refused(_: Request, error: Exception) -> Response:
        return from_exception(error)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = f"{request.method} {request.url.path[:_MOST_PARAM_CHARS]}"
        allowed = (error.headers or {}).get("Allow", "other methods")
        messages = {
            404: f"{path} does not exist here",
            405: f"{path} is not allowed; allowed: {allowed}",
        }
        message = messages.get(error.status_code, str(error.detail))
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
        return error_response(message, status=error.status_code, code=code, headers=error.headers)

    async def client_gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it, but the http_* metrics count it

    app.add_exception_handler(ClientDisconnect, client_gone)
    app.add_exception_handler(RequestError, refused)
    app.add_exception_handler(EngineDeadError, refused)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, refused)
