"""How long a user thinks between an answer's end and the next question, in seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.errors import UserError
from tuner.printable import shortened
from tuner.units import parse_duration_s
from tuner.workload.writing import plain

_CALL = re.compile(r"(exponential|lognormal)\(\s*([^,()]+?)\s*(?:,\s*(\d*\.?\d+)\s*)?\)$", re.ASCII)
MAX_SIGMA = 4.0


@dataclass(frozen=True, slots=True)
class Think:
    """fixed(a) · uniform(a … b) · exponential(mean a) · lognormal(median a, sigma b); seconds."""

    kind: Literal["fixed", "uniform", "exponential", "lognormal"] = "fixed"
    a: float = 0.0
    b: float = 0.0

    def draw(self, rng: np.random.Generator) -> float:
        if self.kind == "uniform":
            return float(rng.uniform(self.a, self.b))
        if self.kind == "exponential":
            return float(rng.exponential(self.a))
        if self.kind == "lognormal":
            return float(rng.lognormal(math.log(self.a), self.b))
        return self.a

    def __str__(self) -> str:
        first = f"{plain(self.a)}s"
        if self.kind == "fixed":
            return first
        if self.kind == "uniform":
            return f"{first}..{plain(self.b)}s"
        return f"{self.kind}({first}" + (f",{plain(self.b)})" if self.kind == "lognormal" else ")")


NO_PAUSE = Think()


def parse_think(text: str) -> Think:
    """`2s`, `1s..10s`, `exponential(5s)`, `lognormal(5s,0.8)`. Raises UserError."""
    text = text.strip()
    flag = "--workload: think="
    where = f"{flag}{shortened(text)}"
    if found := _CALL.match(text):
        first_s = parse_duration_s(found.group(2), flag)
        if found.group(1) == "exponential" and found.group(3) is None:
            return Think("exponential", first_s)
        if found.group(1) == "lognormal" and found.group(3) is not None:
            if (sigma := float(found.group(3))) > MAX_SIGMA:
                raise UserError(f"{where} spreads too far; sigma is at most {MAX_SIGMA:g}")
            return Think("lognormal", first_s, sigma)
    elif ".." in text:
        low, _, high = text.partition("..")
        low_s = parse_duration_s(low, flag, zero_allowed=True)
        high_s = parse_duration_s(high, flag)
        if low_s > high_s:
            raise UserError(f"{where} runs backwards; write SHORT..LONG")
        return Think("uniform", low_s, high_s)
    elif "(" not in text:
        return Think("fixed", parse_duration_s(text, flag, zero_allowed=True))
    raise UserError(f"{where} is no pause; write 2s, 1s..10s, exponential(5s) or lognormal(5s,0.8)")
