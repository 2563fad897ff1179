"""The address of a server as people write it, in one form.

Lies in the lowest room because load generator, metric sources and dashboard all take one.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

PASTED = ("/metrics", "/v1")
"""What a URL copied from elsewhere ends in; the base lies before it."""


def base_url(text: str, *, drop: Sequence[str] = PASTED) -> str:
    """`host:8000/v1/` → `http://host:8000`. Raises ValueError, one sentence, for no address.

    A path that is not in `drop` stays; query and fragment do not.
    """
    given = text.strip()
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(map(str.isspace, given)):
        raise ValueError(f"{text!r} is not an address: give http://HOST:PORT")
    path = parts.path.rstrip("/")
    for end in drop:
        path = path.removesuffix(end).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"
