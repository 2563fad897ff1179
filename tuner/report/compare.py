"""Two sides of a comparison as text and JSON: each figure of A and B, their ratio, the outcome.

A ratio is B over A with its 95 % interval. What makes two sides incomparable is said before the
figures; the outcome of a figure is never better known than its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.exchange.run import Run, settings_text
from tuner.report.table import aligned, figure_text
from tuner.report.words import OUTCOMES
from tuner.units import count_text, digits, signed_digits

if TYPE_CHECKING:
    from tuner.slo import SloSet
    from tuner.stats import Comparison

SHOWN = (
    "output_tps", "total_tps", "rps", "ttft_p50", "ttft_p95", "ttft_p99", "tpot_p50", "tpot_p95",
    "itl_p50", "itl_p95", "itl_p99", "e2e_p50", "e2e_p95", "e2e_p99", "error_rate",
)  # fmt: skip
HEADLINE = ("output_tps", "ttft_p95", "itl_p95", "e2e_p95", "error_rate")
"""What the exit code speaks of when no SLO says what matters."""

UNEQUAL = 1.2
"""Windows further apart than this ratio are told."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A and B by name, their runs, what to doubt, and each figure's comparison."""

    name_a: str
    name_b: str
    a: Sequence[Run]
    b: Sequence[Run]
    figures: Mapping[str, Comparison]
    deciding: tuple[str, ...]
    warnings: Sequence[str]

    @property
    def worse(self) -> list[str]:
        """The deciding figures in which B is shown to be worse."""
        return [key for key in self.deciding if self.outcome(key) == "worse"]

    def outcome(self, key: str) -> str:
        found = self.figures.get(key)
        return found.outcome if found is not None else "inconclusive"


def keys_of(slos: SloSet, unknown: Mapping[str, str]) -> list[str]:
    """The figures to compare; none whose samples a side does not have."""
    named = [c.key for c in slos.clauses if c.metric not in ("queue", "accuracy", "cost_per_mtok")]
    goodput = ["goodput", "attainment"] if slos.latency_bounds_s else []
    keys = dict.fromkeys([*named, *goodput, *SHOWN])
    return [key for key in keys if key not in unknown and key.partition("_")[0] not in unknown]


def deciding_keys(slos: SloSet) -> tuple[str, ...]:
    """Those of the SLOs and the throughput, else the headline figures."""
    if not slos:
        return HEADLINE
    return tuple(dict.fromkeys([*(clause.key for clause in slos.clauses), "output_tps"]))


def warnings(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """Why the two sides may differ by more than what is compared; one sentence each."""
    found = []
    for what in ("model", "workload"):
        values = [sorted({str(getattr(run, what)) for run in side} - {""}) for side in (a, b)]
        if values[0] and values[1] and values[0] != values[1]:
            shown = " against ".join(" and ".join(side) for side in values)
            found.append(f"another {what} ({shown}): the sides were not asked the same")
    seeds = [sorted({run.seed for run in side if run.seed is not None}) for side in (a, b)]
    if seeds[0] and seeds[1] and not set(seeds[0]) & set(seeds[1]):
        shown = " against ".join(", ".join(map(str, side)) for side in seeds)
        found.append(
            f"other seeds ({shown}): other lengths and arrivals, so requests are no pairs in truth"
        )
    if len(a) != len(b):
        found.append(
            f"{count_text(len(a), 'run')} of A and {len(b)} of B: runs without a partner "
            "count in their side's figures only"
        )
    found += [note for run in (*a, *b) for note in _doubts(run)]
    lengths = [sum(run.window_s[1] - run.window_s[0] for run in side) / len(side)
               for side in (a, b)]  # fmt: skip
    if max(lengths) > UNEQUAL * min(lengths):
        found.append(f"windows of {lengths[0]:.0f} s against {lengths[1]:.0f} s")
    formats = [sorted({str(run.source.get("format") or "slotune") for run in side})
               for side in (a, b)]  # fmt: skip
    if formats[0] != formats[1]:
        found.append(
            f"measured by {' and '.join(formats[0])} against {' and '.join(formats[1])}: load "
            "generators differ in when they start the clock"
        )
    unknown = {metric: why for run in (*a, *b) for metric, why in run.unknown.items()}
    found += [f"{metric} not compared: {why}" for metric, why in unknown.items()]
    return found


def compare_lines(compared: Compared) -> list[str]:
    rows = [["", "A", "B", "B / A", "95 % interval", "outcome"]]
    rows += [_row(key, found) for key, found in compared.figures.items()]
    lines = [f"A: {_side(compared.name_a, compared.a)}", f"B: {_side(compared.name_b, compared.b)}"]
    lines += [f"warning: {text}" for text in compared.warnings]
    lines += ["", *aligned(rows), ""]
    lines.append("  brackets: 95 % interval; n: samples; outcome: where the ratio's interval lies")
    lines += [f"  {', '.join(keys)}: {method}" for method, keys in _methods(compared).items()]
    return [*lines, answer(compared)]


def _methods(compared: Compared) -> dict[str, list[str]]:
    """How outcomes were found, each way with its figures."""
    methods: dict[str, list[str]] = {}
    for key, found in compared.figures.items():
        if found.method:
            methods.setdefault(found.method, []).append(key)
    return methods


def answer(compared: Compared) -> str:
    """The sentence that the exit code stands for."""
    if compared.worse:
        return f"B is worse in {', '.join(compared.worse)}"
    better = [key for key in compared.deciding if compared.outcome(key) == "improved"]
    others = ", ".join(key for key in compared.deciding if key not in better)
    if not better:
        return f"B is not shown to be worse in {others}"
    told = f"B is better in {', '.join(better)}"
    return f"{told} and not shown to be worse in {others}" if others else told


def compare_dict(compared: Compared) -> dict[str, Any]:
    return {
        "a": _side_dict(compared.name_a, compared.a),
        "b": _side_dict(compared.name_b, compared.b),
        "warnings": list(compared.warnings),
        "deciding": list(compared.deciding),
        "worse": compared.worse,
        "answer": answer(compared),
        "figures": {key: _figure_dict(found) for key, found in compared.figures.items()},
    }


def ratio_text(found: Comparison) -> tuple[str, str]:
    """(ratio, its interval), of shares their difference; a dash where there is none."""
    if found.difference is not None:
        value, low, high = (signed_digits(100 * part) for part in found.difference)
        return f"{value} points", f"{low} … {high}"
    if math.isnan(found.ratio):
        return "–", "–"
    return f"{digits(found.ratio)} ×", f"{digits(found.low)} … {digits(found.high)}"


def _row(key: str, found: Comparison) -> list[str]:
    ratio, interval = ratio_text(found)
    sides = [figure_text(side) if side is not None else "–" for side in (found.a, found.b)]
    return [key, *sides, ratio, interval, OUTCOMES[found.outcome]]


def _side(name: str, runs: Sequence[Run]) -> str:
    first = runs[0]
    names = ", ".join(run.name for run in runs)
    called = names if name in names or name == first.name.removeprefix("run ") else name
    runs_of = f" ({len(runs)} runs: {names})" if len(runs) > 1 and called == name else ""
    parts = [f"{called}{runs_of}", first.model, first.workload, settings_text(first.config)]
    return " · ".join(part for part in parts if part)


def _side_dict(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "name": name,
        "runs": [
            {"run": run.run_id, "name": run.name, "model": run.model, "workload": run.workload,
             "seed": run.seed, "config": run.config, "state": run.state}
            for run in runs
        ],
    }  # fmt: skip


def _figure_dict(found: Comparison) -> dict[str, Any]:
    return {
        "a": found.a.as_dict() if found.a is not None else None,
        "b": found.b.as_dict() if found.b is not None else None,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "difference": found.difference,
        "n": found.n,
        "outcome": found.outcome,
        "method": found.method,
    }


def _doubts(run: Run) -> list[str]:
    if run.invalid_reason:
        return [f"{run.name} is invalid: {run.invalid_reason}"]
    if run.state == "failed":
        return [f"{run.name} has failed: {run.failure_reason or 'no request was answered'}"]
    return []
