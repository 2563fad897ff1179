"""Distributions of token counts: fixed, uniform, normal, lognormal, quantiles, or from a file.

Invariant: a length is at least 1 token, and drawing one takes no memory.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.errors import UserError
from tuner.printable import shortened
from tuner.workload.columns import Named
from tuner.workload.read import read_recording
from tuner.workload.writing import FileName, parse_file_name, plain, quoted, split_outside, unquoted

Kind = Literal["fixed", "uniform", "normal", "lognormal", "quantiles", "empirical", "recorded"]
_RANGE = re.compile(r"(\d+)\.\.(\d+)$", re.ASCII)
_CALL = re.compile(r"(normal|lognormal)\(\s*(\d+(?:\.\d+)?)\s*[,;/ ]\s*(\d*\.?\d+)\s*\)$", re.ASCII)
_FROM_FILE = re.compile(r"empirical\((.+)\)$", re.DOTALL)
_QUANTILES = re.compile(r"quantiles\((.*)\)$", re.DOTALL)
_POINT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*:\s*(\d+(?:\.\d+)?)\s*$", re.ASCII)
MAX_TOKENS = 1_000_000
MAX_SIGMA = 4.0
"""At 4 one length in 40 is more than 2,500 times the median: beyond that nothing is a workload."""

FORMS = (
    "256, 128..512, normal(256,40), lognormal(256,0.5), quantiles(0:10,50:200,100:900) or "
    "empirical(FILE)"
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """fixed(a) · uniform(a … b) · normal(mean a, sd b) · lognormal(median a, sigma b); tokens.

    quantiles: (percent, tokens) points from 0 to 100, straight lines between. empirical: the
    numbers of a file's column. recorded: what a workload's own file says, mean a; never drawn here.
    """

    kind: Kind
    a: float
    b: float = 0.0
    points: tuple[tuple[float, float], ...] = ()
    file: FileName | None = None
    column: str = ""
    sample: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def draw(self, rng: np.random.Generator) -> int:
        """A length of at least 1 token."""
        if self.kind == "fixed":
            return int(self.a)
        if self.kind == "uniform":
            return int(rng.integers(int(self.a), int(self.b) + 1))
        if self.kind == "normal":
            drawn = float(rng.normal(self.a, self.b))
        elif self.kind == "lognormal":
            drawn = float(rng.lognormal(math.log(self.a), self.b))
        elif self.kind == "quantiles":
            percents, tokens = zip(*self.points, strict=True)
            drawn = float(np.interp(100 * rng.random(), percents, tokens))
        else:
            assert self.sample is not None, "recorded lengths are read from their source"
            drawn = float(self.sample[rng.integers(len(self.sample))])
        return round(min(max(drawn, 1.0), MAX_TOKENS))

    @property
    def mean(self) -> float:
        """Expected tokens."""
        if self.kind == "uniform":
            return (self.a + self.b) / 2
        return self.a * math.exp(self.b**2 / 2) if self.kind == "lognormal" else self.a

    @property
    def always_one(self) -> bool:
        return self.kind == "fixed" and self.a == 1

    def __str__(self) -> str:
        if self.kind == "fixed":
            return plain(self.a)
        if self.kind == "uniform":
            return f"{plain(self.a)}..{plain(self.b)}"
        if self.kind == "quantiles":
            points = ",".join(
                f"{plain(percent)}:{plain(tokens)}" for percent, tokens in self.points
            )
            return f"quantiles({points})"
        if self.kind == "empirical":
            column = f",{quoted(self.column)}" if self.column else ""
            return f"empirical({self.file}{column})"
        return f"{self.kind}({plain(self.a)},{plain(self.b)})"


def parse_lengths(text: str, what: str) -> Lengths:
    """`256`, `128..512`, `normal(256,40)`, … as FORMS has them. Raises UserError."""
    text = text.strip()
    where = f"--workload: {what}={shortened(text)}"
    if found := _FROM_FILE.match(text):
        return _empirical(found.group(1), what)
    if found := _QUANTILES.match(text):
        return _quantiles(found.group(1), where)
    if text.isascii() and text.isdecimal():
        lengths = Lengths("fixed", float(text))
    elif found := _RANGE.match(text):
        lengths = Lengths("uniform", float(found.group(1)), float(found.group(2)))
        if lengths.a > lengths.b:
            raise UserError(f"{where} runs backwards; write LOW..HIGH")
    elif found := _CALL.match(text):
        kind: Kind = "normal" if found.group(1) == "normal" else "lognormal"
        lengths = Lengths(kind, float(found.group(2)), float(found.group(3)))
    else:
        raise UserError(f"{where} is no length; write {FORMS}")
    _check(lengths, where)
    return lengths


def _check(lengths: Lengths, where: str) -> None:
    largest = {"uniform": lengths.b, "normal": lengths.a + lengths.b}.get(lengths.kind, lengths.a)
    if lengths.a < 1 or largest > MAX_TOKENS:
        raise UserError(f"{where}: lengths are 1 to {MAX_TOKENS} tokens")
    if lengths.kind == "lognormal" and (lengths.b > MAX_SIGMA or lengths.mean > MAX_TOKENS):
        raise UserError(
            f"{where} spreads too far; sigma is at most {MAX_SIGMA:g} and the "
            f"mean length at most {MAX_TOKENS} tokens"
        )


def _quantiles(inner: str, where: str) -> Lengths:
    found = [_POINT.match(point) for point in inner.split(",")]
    points = tuple((float(p.group(1)), float(p.group(2))) for p in found if p)
    rising = all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(points))
    if not all(found) or not rising or points[0][0] != 0 or points[-1][0] != 100:
        raise UserError(
            f"{where}: write rising points PERCENT:TOKENS from 0 to 100, for "
            "example quantiles(0:10,50:200,95:700,100:900)"
        )
    if points[-1][1] > MAX_TOKENS or points[-1][1] < 1:
        raise UserError(f"{where}: lengths are 1 to {MAX_TOKENS} tokens")
    mean = sum((high[0] - low[0]) / 100 * (low[1] + high[1]) / 2 for low, high in pairwise(points))
    return Lengths("quantiles", max(1.0, mean), points=points)


def _empirical(inner: str, what: str) -> Lengths:
    """`FILE` or `FILE,COLUMN`; without a column the file's own one of that meaning."""
    name, *rest = split_outside(inner)
    if len(rest) > 1:
        raise UserError(
            f"--workload: {what}=empirical({shortened(inner)}): write empirical(FILE,COLUMN)"
        )
    column = unquoted(rest[0]) if rest else ""
    file = parse_file_name(name, what)
    is_output = what == "output"
    named = Named(output=column) if is_output else Named(prompt=column)
    recording = read_recording(file.path, named)
    rows = recording.rows
    sample = rows.output_tokens if is_output else rows.prompt_tokens
    if sample is None:
        other = "output" if is_output else "prompt"
        raise UserError(
            f"{file.path}: has no column of {other} tokens; name it, empirical(FILE,COLUMN)"
        )
    sample = np.maximum(1, sample)
    return Lengths(
        "empirical", float(sample.mean()), file=file.checked(recording.sha256), column=column,
        sample=sample,
    )  # fmt: skip
