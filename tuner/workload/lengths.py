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
            return max(1, round(rng.normal(self.a, self.b)))
        return max(1, round(rng.lognormal(math.log(self.a), self.b)))

    @property
    def mean(self) -> float:
        """Expected tokens."""
        if self.kind == "uniform":
            return (self.a + self.b) / 2
        return self.a * math.exp(self.b**2 / 2) if self.kind == "lognormal" else self.a

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.a:g}"
        if self.kind == "uniform":
            return f"{self.a:g}..{self.b:g}"
        return f"{self.kind}({self.a:g},{self.b:g})"


def parse_lengths(text: str, what: str) -> Lengths:
    """`256`, `128..512`, `normal(256,40)`, `lognormal(256,0.5)`. Raises UserError."""
    text = text.strip()
    if text.isdigit():
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
    if lengths.a < 1 or lengths.mean > MAX_TOKENS:
        raise UserError(f"--workload: {what}={text}: lengths are 1 to {MAX_TOKENS} tokens")
    return lengths
