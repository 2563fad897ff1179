"""What `--knob` may say: values, a range, a condition, or a link to other knobs.

    NAME=10,20,40   NAME=8:256[:log|:lin]   NAME=0.7..0.95   NAME=auto,fp8   NAME=true,false
    NAME=… if CONDITION     NAME:=EXPRESSION     --A-FLAG=1,2,4

Invariant: a text that parses names a knob the target can turn, with settings it says it allows.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.knobs import KNOB_ALIASES, KNOBS, LIVE_KNOBS
from tuner.errors import UserError
from tuner.search.axis import Axis
from tuner.search.expressions import Expression, parse_expression
from tuner.targets.base import UNSET, KnobRange, Setting

_RANGE = re.compile(r"(.+?)(?:\.\.|:)([^:]+?)(:log|:lin)?$")
_NAME = re.compile(r"\s*((?:--)?[A-Za-z][\w-]*)\s*(:?=)(.*)$", re.DOTALL)
_BOOLS = {"true": True, "false": False, "on": True, "off": False, "yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Link:
    """A knob that follows others: its setting is what the expression gives, a whole number where
    the knob takes only those. bounds: what the target allows."""

    name: str
    whole: bool
    expression: Expression
    bounds: KnobRange

    def __str__(self) -> str:
        return f"{self.name}:={self.expression.text}"

    def value(self, config: Mapping[str, Setting]) -> Setting:
        found = self.expression.value(config)
        if isinstance(found, (bool, str)):
            return found
        return int(found) if self.whole else round(float(found), 3)

    def allows(self, value: Setting | None) -> bool:
        """Whether the target would take the value; None is none yet."""
        if value is None or isinstance(value, (bool, str)) or self.bounds.anything:
            return True
        return self.bounds.low <= value <= self.bounds.high


def knob_name(text: str) -> str:
    """The knob a --knob text (or a flag of some server) is about: a name of the table, or the flag
    with its dashes when no table knows it. "" when there is no name."""
    found = _NAME.match(text)
    name = found.group(1) if found else text.partition("=")[0].strip()
    if name.startswith("--"):
        return _by_flag(name) or name.lower().replace("_", "-")
    name = name.replace("-", "_")
    return KNOB_ALIASES.get(name, name)


def names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """The knobs of --knob texts. UserError for one that no target has; needs no server."""
    names = []
    for text in texts:
        name = knob_name(text)
        if name not in KNOBS and not name.startswith("--"):
            close = difflib.get_close_matches(name, [*KNOBS, *KNOB_ALIASES], n=1, cutoff=0.4)
            known = f"known: {', '.join(KNOBS)}, or a flag of the server's own, --LIKE-THIS"
            raise UserError(
                f"--knob {name}: unknown knob; {f'did you mean {close[0]}?' if close else known}"
            )
        names.append(name)
    return tuple(names)


def check_texts(texts: Sequence[str], constraints: Sequence[str]) -> None:
    """UserError for --knob and --constraint texts of which no server could make anything; whether
    one allows their values shows when it runs."""
    unseen = KnobRange(0, 1, 0, live=False)
    knobs = dict.fromkeys([*LIVE_KNOBS, *names_of(texts)], unseen)
    for text in texts:
        parse_knob(text, knobs)
    for text in constraints:
        parse_expression(text, "--constraint", known=[*knobs])


def parse_knob(text: str, knobs: Mapping[str, KnobRange]) -> Axis | Link:
    """One --knob text, inside what the target allows. Raises UserError."""
    name = knob_name(text)
    if name not in knobs:
        names_of([text])
        can = ", ".join(knobs) or "nothing"
        raise UserError(f"--knob {name}: this server cannot change it; it can change {can}")
    found = _NAME.match(text)
    operator, rest = (found.group(2), found.group(3).strip()) if found else ("=", "")
    if not rest:
        example = f"{name}=8,16,32 or {name}=8:256:log"
        raise UserError(f"--knob {text!r}: no values; write {example}")
    if operator == ":=":
        expression = parse_expression(rest, f"--knob {name}:=", known=[*knobs])
        if name in expression.names:
            raise UserError(f"--knob {text!r}: {name} cannot follow itself")
        whole = name in KNOBS and KNOBS[name].kind == "int"
        return Link(name, whole, expression, knobs[name])
    values, condition = _split_condition(rest)
    axis = _axis(text, name, values, knobs[name])
    if condition:
        parsed = parse_expression(condition, f"--knob {name} if", known=[*knobs])
        if name in parsed.names:
            raise UserError(f"--knob {text!r}: the condition of {name} cannot be about itself")
        axis = replace(axis, condition=parsed)
    return axis


def _by_flag(flag: str) -> str:
    """The table's knob of a flag of any of the engines, "" when there is none."""
    plain = flag.lower().replace("_", "-")
    for knob in KNOBS.values():
        flags = [knob.engine_flag, knob.vllm_flag]
        flags += [] if knob.sglang_inverts else [knob.sglang_flag]
        if plain in flags:
            return knob.name
    return ""


def _split_condition(text: str) -> tuple[str, str]:
    values, _, condition = text.partition(" if ")
    return values.strip(), condition.strip()


def _axis(text: str, name: str, values: str, bounds: KnobRange) -> Axis:
    knob = KNOBS.get(name)
    kind = knob.kind if knob is not None else "flag"
    found = _RANGE.match(values) if kind in ("int", "float", "flag") else None
    if found is not None and not (kind == "flag" and not _is_number(found.group(1))):
        low, high, scale = found.groups()
        whole = kind == "int" or (kind == "flag" and _is_whole(low) and _is_whole(high))
        ends = [_number(part, name, whole) for part in (low, high)]
        if ends[0] >= ends[1]:
            raise UserError(f"--knob {text!r}: the range must run from low to high")
        log = scale == ":log" or (scale is None and knob is not None and knob.log)
        if log and ends[0] <= 0:
            raise UserError(f"--knob {text!r}: a log range must start above 0")
        axis = Axis(name, whole, ends[0], ends[1], log, own=bounds.value)
        _check_bounds(ends, name, bounds)
        return axis
    listed = _listed([part.strip() for part in values.split(",")], name, kind, bounds)
    numbers = [value for value in listed if not isinstance(value, (str, bool))]
    _check_bounds(numbers, name, bounds)
    whole = all(isinstance(value, int) for value in numbers) and kind != "float"
    ends_or = (min(numbers), max(numbers)) if numbers else (0, 0)
    return Axis(name, whole, *ends_or, values=tuple(listed))


def _listed(parts: list[str], name: str, kind: str, bounds: KnobRange) -> list[Setting]:
    """Distinct settings: numbers ascending, then words as given."""
    if not all(parts):
        raise UserError(f"--knob {name}: a value is missing between two commas")
    settings = [_setting(part, name, kind, bounds) for part in parts]
    numbers = [s for s in settings if not isinstance(s, (str, bool))]
    words = [s for s in settings if isinstance(s, (str, bool))]
    return [*sorted(set(numbers)), *dict.fromkeys(words)]


def _setting(text: str, name: str, kind: str, bounds: KnobRange) -> Setting:
    if text == UNSET and not bounds.live:
        return UNSET
    if kind == "bool":
        if text.lower() not in _BOOLS:
            raise UserError(f"--knob {name}: {text!r} is neither true nor false")
        return _BOOLS[text.lower()]
    if kind == "choice":
        if bounds.words and text not in bounds.words:
            known = ", ".join(map(str, bounds.words))
            raise UserError(f"--knob {name}: this server knows no {text!r}; it knows {known}")
        return text
    if kind == "flag":
        if text.lower() in ("true", "false"):
            return _BOOLS[text.lower()]
        return _number(text, name, _is_whole(text)) if _is_number(text) else text
    return _number(text, name, kind == "int")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", text.strip()) is not None


def _number(text: str, name: str, whole: bool) -> int | float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"--knob {name}: {text.strip()!r} is no number") from None
    if not math.isfinite(value) or (whole and value != int(value)):
        kind = "a whole number" if whole else "a finite number"
        raise UserError(f"--knob {name}: {text.strip()} is not {kind}")
    return int(value) if whole else value


def _check_bounds(values: Sequence[float], name: str, bounds: KnobRange) -> None:
    for value in values:
        if not bounds.anything and not bounds.low <= value <= bounds.high:
            raise UserError(
                f"--knob {name}: {value:g} is outside {bounds.low:g} to {bounds.high:g}, "
                "what this server allows"
            )
