"""Figures and columns as the terminal shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.stats import Estimate
from tuner.units import digits, show


def estimate_text(estimate: Estimate | None) -> str:
    """`312 ms [287 ms, 344 ms] n=214`."""
    if estimate is None or not estimate.measured:
        return "–"
    ends = f"{show(estimate.low, estimate.unit)}, {show(estimate.high, estimate.unit)}"
    return f"{show(estimate.value, estimate.unit)} [{ends}] n={estimate.n}"


def figure_text(estimate: Estimate) -> str:
    """The same of a figure that was asked for: `no data` where there is none."""
    return estimate_text(estimate) if estimate.measured else "no data"


def factor_text(ratio: float, low: float = math.nan, high: float = math.nan) -> str:
    """`× 1.31 [1.22, 1.41]`; without the brackets where there is no interval."""
    told = f"× {digits(ratio)}"
    if math.isnan(low) or math.isnan(high):
        return told
    return f"{told} [{digits(low)}, {digits(high)}]"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to their widest cell."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [f"  {line}".rstrip() for line in padded]
