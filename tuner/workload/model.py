"""A workload as one line of text: "prompt=256,output=64,concurrency=16" or "chat,rate=2".

Common random numbers: the same seed gives the same arrivals and lengths for every configuration.
Content is fresh for every measurement, so that a warm prefix cache cannot flatter.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.errors import UserError
from tuner.workload.arrivals import Arrivals
from tuner.workload.lengths import Lengths, parse_lengths

PRESETS: dict[str, str] = {
    "chat": "prompt=lognormal(200,0.8),output=lognormal(150,0.6),shared_prefix=100",
    "rag": "prompt=normal(1500,400),output=lognormal(120,0.5),shared_prefix=200",
    "summarize": "prompt=normal(1200,300),output=normal(150,30)",
    "code": "prompt=lognormal(600,0.7),output=lognormal(60,0.8)",
    "agent": "prompt=lognormal(1000,0.6),output=lognormal(80,0.7),shared_prefix=600",
    "offline": "prompt=256,output=128,concurrency=64",
}
"""Shapes of common use. Their figures are slotune's own round numbers, to be replaced by yours."""

DEFAULT = "prompt=256,output=64,concurrency=16"
_OUTER_COMMA = re.compile(r",(?![^(]*\))")
_KEYS = (
    "prompt", "output", "shared_prefix", "prefix_groups", "concurrency", "rate", "arrivals",
    "burstiness", "requests",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths in tokens. shared_prefix tokens at the head of each prompt are one of
    prefix_groups common texts. requests: how many sessions are sent, None until time is up."""

    prompt: Lengths
    output: Lengths
    arrivals: Arrivals
    shared_prefix: int = 0
    prefix_groups: int = 1
    requests: int | None = None

    def lengths(self, seed: int, session: int, turn: int = 0) -> tuple[int, int, int]:
        """(prompt tokens, output tokens, prefix group) of one turn of a session."""
        rng = np.random.default_rng((seed, session))
        prompt, output = self.prompt.draw(rng), self.output.draw(rng)
        group = int(rng.integers(self.prefix_groups))
        return max(prompt, self.shared_prefix + 1), output, group

    def at(self, level: float) -> Workload:
        """The same at another concurrency or rate."""
        return replace(self, arrivals=replace(self.arrivals, level=level))

    def __str__(self) -> str:
        parts = [f"prompt={self.prompt}", f"output={self.output}"]
        if self.shared_prefix:
            parts.append(f"shared_prefix={self.shared_prefix}")
        if self.prefix_groups != 1:
            parts.append(f"prefix_groups={self.prefix_groups}")
        if self.requests is not None:
            parts.append(f"requests={self.requests}")
        return ",".join([*parts, str(self.arrivals)])

    @classmethod
    def parse(cls, text: str | None) -> Workload:
        """`"prompt=256,output=64,concurrency=16"`, `"chat,rate=2"`; None: the default."""
        return parse_workload(text)

    def as_dict(self) -> dict[str, Any]:
        return {"text": str(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Workload:
        return parse_workload(str(values["text"]))


def parse_workload(text: str | None) -> Workload:
    """The workload of a --workload text; None is the default. Raises UserError."""
    values = _values(text or DEFAULT)
    if "prompt" not in values or "output" not in values:
        missing = "prompt" if "prompt" not in values else "output"
        raise UserError(
            f"--workload {text!r}: {missing}= is missing; write {DEFAULT!r} or a preset "
            f"({', '.join(PRESETS)}) with concurrency= or rate="
        )
    return Workload(
        prompt=parse_lengths(values["prompt"], "prompt"),
        output=parse_lengths(values["output"], "output"),
        arrivals=_arrivals(values),
        shared_prefix=int(_number(values, "shared_prefix", 0, at_least=0, whole=True)),
        prefix_groups=int(_number(values, "prefix_groups", 1, at_least=1, whole=True)),
        requests=int(_number(values, "requests", 0, at_least=1, whole=True)) or None,
    )


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in (piece.strip() for piece in _OUTER_COMMA.split(text)):
        key, equals, value = part.partition("=")
        key = key.strip().lower()
        if not equals and key in PRESETS:
            values = {**_values(PRESETS[key]), **values}
        elif equals and key in _KEYS:
            if not value.strip():
                raise UserError(f"--workload: {key}= has no value")
            for other in {"concurrency", "rate"} - {key} if key in ("concurrency", "rate") else ():
                values.pop(other, None)
            values[key] = value.strip()
        else:
            known = [*PRESETS, *(f"{name}=" for name in _KEYS)]
            close = difflib.get_close_matches(part, known, n=1, cutoff=0.4)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
            raise UserError(f"--workload: {part!r} is not understood{hint}")
    return values


def _arrivals(values: dict[str, str]) -> Arrivals:
    if "rate" not in values:
        for key in ("arrivals", "burstiness"):
            if key in values:
                raise UserError(f"--workload: {key}= needs rate=, requests per second")
        level = _number(values, "concurrency", 16, at_least=1, whole=True)
        return Arrivals("concurrency", level)
    rate = _number(values, "rate", 0, at_least=1e-3)
    kind = values.get("arrivals", "gamma" if "burstiness" in values else "poisson")
    if kind not in ("constant", "poisson", "gamma"):
        raise UserError(f"--workload: arrivals={kind}; known: constant, poisson, gamma")
    burstiness = _number(values, "burstiness", 1, at_least=1e-2)
    return Arrivals(kind, rate, burstiness)  # type: ignore[arg-type]


def _number(
    values: dict[str, str], key: str, default: float, *, at_least: float, whole: bool = False
) -> float:
    text = values.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"--workload: {key}={text} is no number") from None
    if not at_least <= number < 1e6 or (whole and number != int(number)):
        kind = "a whole number" if whole else "a number"
        raise UserError(f"--workload: {key}={text} must be {kind} of at least {at_least:g}")
    return number
