"""The address of a server as people write it, in one form.

Lies in the lowest room because load generator, metric sources and dashboard all take one.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

PASTED = ("/metrics", "/v1")
"""What a URL copied from elsewhere ends in; the base lies before it."""


class UserNameError(ValueError):
    """An address that says who asks: it would be dropped, not sent."""


def split(text: str) -> SplitResult:
    """Its parts, `http` where no scheme is given. Raises ValueError, one sentence, for no address;
    a user's password is not in it."""
    given = text.strip()
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        valid = False
    if valid and parts.username is not None:
        raise UserNameError(
            f"the address of {parts.hostname} holds a user name, which is not sent: leave it out"
        )
    if not valid or not parts.path.isascii() or any(map(str.isspace, given)):
        raise ValueError(f"{text[:200]!r} is not an address: give http://HOST:PORT")
    return parts


def base_url(text: str, *, drop: Sequence[str] = PASTED) -> str:
    """`host:8000/v1/` → `http://host:8000`. Raises ValueError, one sentence, for no address.

    A path that is not in `drop` stays; query and fragment do not.
    """
    parts = split(text)
    path = parts.path.rstrip("/")
    for end in drop:
        path = path.removesuffix(end).rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"
