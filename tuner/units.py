"""Durations as users write them, and figures as they read them."""

from __future__ import annotations

import math
import re

from tuner.errors import UserError
from tuner.printable import shortened

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)\s*$", re.IGNORECASE)
LEAST_SHARE = 1e-5
"""A share below this and above 0 is told as less than it: its digits say nothing."""

LEAST_NUMBER = 1e-4
"""The same for any other number."""

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def is_duration(text: str) -> bool:
    """Whether it is written as one, of whatever length."""
    return _DURATION.match(text) is not None


def parse_duration_s(text: str, flag: str, *, zero_allowed: bool = False) -> float:
    """`30s`, `1.5m`, `2h` in seconds. Raises UserError naming the flag."""
    found = _DURATION.match(text)
    if found is None:
        raise UserError(
            f"{flag} {shortened(text)!r} is no duration; write for example 30s, 5m or 1h"
        )
    seconds = float(found.group(1)) * _SECONDS[found.group(2).lower()]
    if seconds < 0 or (seconds == 0 and not zero_allowed) or seconds > 7 * 86_400:
        raise UserError(f"{flag} {shortened(text)!r} must be more than 0 and at most a week")
    return seconds


def show(value: float, unit: str) -> str:
    """A figure with its unit, in the size a reader expects: 0.0123 s → 12.3 ms."""
    if math.isnan(value):
        return "no data"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if unit == "s":
        return f"{digits(value * 1e3)} ms" if abs(value) < 0.9995 else f"{digits(value)} s"
    if unit == "share":
        return _percent(value)
    if unit == "$":
        return f"$ {digits(value)}"
    return f"{digits(value)} {unit}".rstrip()


def _percent(share: float) -> str:
    """As digits() has it, and never 100 % of what is less: 99.97 %, > 99.999 %."""
    if 0 < share < LEAST_SHARE:
        return "< 0.001 %"
    if share >= 1 or digits(share * 100) != "100":
        return f"{digits(share * 100)} %"
    if (missing := 1 - share) < LEAST_SHARE:
        return "> 99.999 %"
    places = 1 - math.floor(math.log10(missing * 100))
    return f"{share * 100:.{places}f}".rstrip("0").rstrip(".") + " %"


def digits(value: float) -> str:
    """Three significant digits and never an exponent: 0.0123, 4.5, 265000, < 0.0001, ∞."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if 0 < abs(value) < LEAST_NUMBER:
        return f"< {LEAST_NUMBER:g}" if value > 0 else f"> -{LEAST_NUMBER:g}"
    return f"{value:.3g}"


def signed_digits(value: float) -> str:
    """The same of a difference, with its sign: +0.5, -12, 0."""
    return f"+{digits(value)}" if value >= LEAST_NUMBER else digits(value)


def noun(count: float, singular: str, plural: str = "") -> str:
    """`measurement` for 1, else `measurements`; plural: where it does not end in s alone."""
    return singular if count == 1 else plural or f"{singular}s"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """`1 measurement`, `3 measurements`, `0 queries`."""
    return f"{count} {noun(count, singular, plural)}"
