"""What the terminal, the pages and the dashboard call answers, gains and outcomes: one table each.

The words for verdicts stand beside their states (tuner.slo.judge).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.slo import VERDICTS as VERDICTS
from tuner.units import show

if TYPE_CHECKING:
    from tuner.stats import Estimate

ANSWERS = {
    "improved": "A better configuration is confirmed",
    "keep_baseline": "Keep the baseline",
    "undecided": "Undecided",
    "none_feasible": "No configuration met the SLOs",
    "swept": "Swept",
}

DOUBTFUL = "not confirmed: it is not shown to meet the SLOs"
"""Said of an undecided study's best candidate wherever its commands stand."""

MARKS = {"pass": "✔", "fail": "✘", "inconclusive": "?"}

OUTCOMES = {
    "improved": "better", "worse": "worse", "no_difference": "no difference",
    "inconclusive": "undecided",
}  # fmt: skip
"""Of one figure on two sides."""

GAINS = {
    "improved": "confirmed",
    "worse": "worse, and that is confirmed",
    "no_difference": "no difference",
    "inconclusive": "not confirmed",
}


def is_confirmed(result: Mapping[str, Any]) -> bool:
    """Whether the best configuration of a stored result, where it has one, meets the SLOs."""
    verdict = (result.get("best") or {}).get("verdict") or {}
    return bool(verdict.get("state", "pass") == "pass")


FIGURE_HEAD = f"{'figure':14}{'value':>12}{'95 % interval':>30}{'n':>8}  method"


def figure_line(key: str, estimate: Estimate) -> str:
    """A figure under FIGURE_HEAD."""
    if not estimate.measured:
        return f"{key:14}{'no data':>12}{'':>30}{0:>8}  {estimate.reason}"
    interval = f"  {show(estimate.low, estimate.unit)} … {show(estimate.high, estimate.unit)}"
    method = estimate.method.replace("inverted empirical CDF, binomial interval", "order statistic")
    value = show(estimate.value, estimate.unit)
    return f"{key:14}{value:>12}{interval:>30}  {estimate.n:>6}  {method}"


def load_text(
    workload: object, seed: int, window_s: float, warmup_s: float, *, searched: bool = False
) -> str:
    """Under what load and over which window a study's figures were measured. searched: its level
    is only where the search for the highest one began."""
    level = " (where the search for the highest level began; other figures: at the highest level "
    level = f"{level}that each run met)" if searched else ""
    return (
        f"load {workload}{level} · seed {seed} · each measurement {window_s:.3g} s after at least "
        f"{warmup_s:.3g} s of warm-up"
    )
