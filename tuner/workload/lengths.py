"""Distributions of token counts: fixed, uniform, normal, lognormal."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.errors import UserError

Kind = Literal["fixed", "uniform", "normal", "lognormal"]
_RANGE = re.compile(r"(\d+)\.\.(\d+)$")
_CALL = re.compile(r"(normal|lognormal)\(\s*(\d+(?:\.\d+)?)\s*[,;/ ]\s*(\d*\.?\d+)\s*\)$")
MAX_TOKENS = 1_000_000
MAX_SIGMA = 4.0
"""At 4 one length in 40 is more than 2,500 times the median: beyond that nothing is a workload."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """fixed(a) · uniform(a … b) · normal(mean a, sd b) · lognormal(median a, sigma b); tokens."""

    kind: Kind
    a: float
    b: float = 0.0

    def draw(self, rng: np.random.Generator) -> int:
        """A length of at least 1 token."""
        if self.kind == "fixed":
            return int(self.a)
        if self.kind == "uniform":
            return int(rng.integers(int(self.a), int(self.b) + 1))
        if self.kind == "normal":
            drawn = float(rng.normal(self.a, self.b))
        else:
            drawn = float(rng.lognormal(math.log(self.a), self.b))
        return round(min(max(drawn, 1.0), MAX_TOKENS))

    @property
    def mean(self) -> float:
        """Expected tokens."""
        if self.kind == "uniform":
            return (self.a + self.b) / 2
        return self.a * math.exp(self.b**2 / 2) if self.kind == "lognormal" else self.a

    def __str__(self) -> str:
        if self.kind == "fixed":
            return plain(self.a)
        if self.kind == "uniform":
            return f"{plain(self.a)}..{plain(self.b)}"
        return f"{self.kind}({plain(self.a)},{plain(self.b)})"


def parse_lengths(text: str, what: str) -> Lengths:
    """`256`, `128..512`, `normal(256,40)`, `lognormal(256,0.5)`. Raises UserError."""
    text = text.strip()
    if text.isdecimal():
        lengths = Lengths("fixed", float(text))
    elif found := _RANGE.match(text):
        lengths = Lengths("uniform", float(found.group(1)), float(found.group(2)))
        if lengths.a > lengths.b:
            raise UserError(f"--workload: {what}={text} runs backwards; write LOW..HIGH")
    elif found := _CALL.match(text):
        kind: Kind = "normal" if found.group(1) == "normal" else "lognormal"
        lengths = Lengths(kind, float(found.group(2)), float(found.group(3)))
    else:
        raise UserError(
            f"--workload: {what}={text} is no length; write 256, 128..512, normal(256,40) or "
            "lognormal(256,0.5)"
        )
    largest = {"uniform": lengths.b, "normal": lengths.a + lengths.b}.get(lengths.kind, lengths.a)
    if lengths.a < 1 or largest > MAX_TOKENS:
        raise UserError(f"--workload: {what}={text}: lengths are 1 to {MAX_TOKENS} tokens")
    if lengths.kind == "lognormal" and (lengths.b > MAX_SIGMA or lengths.mean > MAX_TOKENS):
        raise UserError(
            f"--workload: {what}={text} spreads too far; sigma is at most {MAX_SIGMA:g} and the "
            f"mean length at most {MAX_TOKENS} tokens"
        )
    return lengths


def plain(number: float) -> str:
    """The shortest digits that read back as the same number, never with an exponent."""
    return np.format_float_positional(number, trim="-")
