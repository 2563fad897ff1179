"""Takes an HTTP request's body in, up to a limit.

Invariant: no request makes the server hold more than MAX_BODY_BYTES of it; one that is longer is
read to its end and dropped, so that its client hears why.
"""

from __future__ import annotations

from fastapi import Request

from engine.errors import RequestError

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Text of four million tokens: beyond what any served context holds."""


async def read_body(request: Request) -> bytes:
    """The whole body; RequestError (413) when it is longer than the limit."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            parts.clear()
        else:
            parts.append(part)
    if size > MAX_BODY_BYTES:
        raise RequestError(
            f"the request body has {size} bytes; at most {MAX_BODY_BYTES} are read",
            code="request_too_large",
            status=413,
        )
    return b"".join(parts)
