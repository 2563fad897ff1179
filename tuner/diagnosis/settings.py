"""What a person tells of a server that does not tell it itself: --set KNOB=VALUE.

Invariant: what is taken is something that the tree may read, under the name by which it reads it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping

from engine.knobs import KNOB_ALIASES, KNOBS, LIVE_KNOBS, REPLACING
from tuner.diagnosis.collect_settings import CONFIG_NAMES
from tuner.errors import UserError

_HIGH = "_high"
_KINDS: dict[str, str] = {
    **{knob.name: knob.kind for knob in KNOBS.values()},
    **{f"{name}{_HIGH}": KNOBS[name].kind for name in (*LIVE_KNOBS, *REPLACING)},
    "num_kv_blocks": "int",
    "device": "choice",
}
_NAMES = KNOB_ALIASES | CONFIG_NAMES
_BOOLS = {
    **dict.fromkeys(("true", "on", "yes", "1"), "true"),
    **dict.fromkeys(("false", "off", "no", "0"), "false"),
}


def checked(settings: Mapping[str, str]) -> dict[str, str]:
    """By our names. UserError for a setting or a value that no server has."""
    return dict(_checked(name, value) for name, value in settings.items())


def _checked(given: str, value: str) -> tuple[str, str]:
    name = given.lstrip("-").replace("-", "_")
    name = _NAMES.get(name, name)
    if name not in _KINDS:
        close = difflib.get_close_matches(name, [*_KINDS, *_NAMES], n=1)
        known = f"did you mean {close[0]}?" if close else f"it knows {', '.join(_KINDS)}"
        raise UserError(f"--set {given}: the diagnosis knows no such setting; {known}")
    kind = _KINDS[name]
    if kind == "choice":
        return name, value
    if kind == "bool":
        if value.lower() not in _BOOLS:
            raise UserError(f"--set {given}: {value!r} is neither true nor false")
        return name, _BOOLS[value.lower()]
    number = _number(value)
    if not 0 < number < math.inf or (kind == "int" and number != int(number)):
        what = "a whole number" if kind == "int" else "a number"
        raise UserError(f"--set {given}: {value!r} is not {what} above 0")
    return name, str(int(number)) if kind == "int" else f"{number:g}"


def _number(text: str) -> float:
    """NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
