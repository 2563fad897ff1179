"""The table of `tuner sweep`: one row per value, and what the knob trades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.knobs import KNOBS
from tuner.report.optimize import aligned, estimate_text
from tuner.report.words import VERDICTS
from tuner.search.objective import Objective
from tuner.search.sweep import SweepPoint
from tuner.slo import SloSet

COLUMNS = ("output_tps", "ttft_p95", "tpot_p50", "itl_p95")


def best_point(points: Sequence[SweepPoint], objective: Objective) -> SweepPoint | None:
    """The value with the best objective among those shown to meet every SLO."""
    best: SweepPoint | None = None
    best_value = 0.0
    for point in points:
        if point.pooled is None or point.pooled.verdict.state != "pass":
            continue
        value = objective.value(point.pooled.summary)
        if value is not None and (best is None or objective.better(value, best_value)):
            best, best_value = point, value
    return best


def sweep_lines(
    name: str, points: Sequence[SweepPoint], slos: SloSet, objective: Objective, load: str
) -> list[str]:
    """What is printed at the end. load says under what the figures were measured."""
    keys = list(dict.fromkeys([*COLUMNS, *(c.key for c in slos.clauses)]))
    rows = [[name, *keys, "SLOs"]]
    for point in points:
        if point.pooled is None:
            rows.append([f"{point.value:g}", *("–" for _ in keys), point.failure])
            continue
        figures = [estimate_text(point.pooled.summary.get(key)) for key in keys]
        rows.append([f"{point.value:g}", *figures, _verdict(point, slos)])
    lines = ["", f"  {load}", "", *aligned(rows), "", "  brackets: 95 % interval; n: samples"]
    lines += [f"  {name} trades: {KNOBS[name].trades}"]
    best = best_point(points, objective)
    if best is not None:
        among = " among values that meet the SLOs" if slos else ""
        figure = estimate_text(best.pooled.summary.get(objective.key)) if best.pooled else ""
        lines.append(f"  best {objective.key}{among}: {name}={best.value:g}, {figure}")
    elif slos:
        lines.append("  no value is shown to meet the SLOs")
    return lines


def sweep_dict(name: str, points: Sequence[SweepPoint], objective: Objective) -> dict[str, Any]:
    best = best_point(points, objective)
    return {
        "knob": name,
        "trades": KNOBS[name].trades,
        "best": {"config": dict(best.config)} if best is not None else {},
        "points": [
            {
                "value": point.value,
                "config": dict(point.config),
                "failure": point.failure,
                "runs": point.pooled.runs if point.pooled else 0,
                "figures": {
                    key: estimate.as_dict() for key, estimate in point.pooled.summary.items()
                } if point.pooled else {},
                "verdict": point.pooled.verdict.as_dict() if point.pooled else None,
            }
            for point in points
        ],
    }  # fmt: skip


def _verdict(point: SweepPoint, slos: SloSet) -> str:
    if point.pooled is None or not slos:
        return "–"
    return VERDICTS[point.pooled.verdict.state]
