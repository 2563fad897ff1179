"""What `tuner sweep` shows of each knob: one row per value, a plot, and what the knob trades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.knobs import KNOBS
from tuner.report.plot import Bar, plot_lines
from tuner.report.table import aligned, estimate_text
from tuner.report.words import VERDICTS
from tuner.search.objective import Objective
from tuner.search.sweep import Line, SweepPoint
from tuner.slo import SloSet
from tuner.targets.base import setting_text

COLUMNS = ("output_tps", "ttft_p95", "tpot_p50", "itl_p95")
PLOTTED_WITHOUT_SLO = ("ttft_p95",)

_LOAD_TRADES = {
    "concurrency": "more clients at once: throughput up until the server is full, then only waits",
    "rate": "more requests per second: throughput follows until the server is full; then the queue "
    "grows without end",
}


def trades_of(name: str) -> str:
    """What a knob trades; of a flag that no table knows, that nobody has said it."""
    if name in KNOBS:
        return KNOBS[name].trades
    return _LOAD_TRADES.get(name, "see the documentation of the server's own flag")


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
    line: Line, points: Sequence[SweepPoint], slos: SloSet, objective: Objective, load: str
) -> list[str]:
    """What is printed of one knob at the end. load says under what the figures were measured."""
    name = line.axis.name
    keys = list(dict.fromkeys([*COLUMNS, *(c.key for c in slos.clauses)]))
    rows = [[name, *keys, "SLOs"]]
    for point in points:
        label = setting_text(point.value)
        if point.pooled is None:
            why = point.failure.splitlines()[0] if point.failure else "not measured"
            rows.append([label, *("–" for _ in keys), why])
            continue
        figures = [estimate_text(point.pooled.summary.get(key)) for key in keys]
        rows.append([label, *figures, _verdict(point, slos)])
    lines = ["", f"  {load}", "", *aligned(rows), "", "  brackets: 95 % interval; n: samples"]
    lines += _plots(points, slos, objective)
    lines += ["", f"  {name} trades: {trades_of(name)}"]
    best = best_point(points, objective)
    if best is not None:
        among = " among values that meet the SLOs" if slos else ""
        figure = estimate_text(best.pooled.summary.get(objective.key)) if best.pooled else ""
        value = setting_text(best.value)
        lines.append(f"  best {objective.key}{among}: {name}={value}, {figure}")
    elif slos:
        lines.append("  no value is shown to meet the SLOs")
    return lines


def sweep_dict(line: Line, points: Sequence[SweepPoint], objective: Objective) -> dict[str, Any]:
    """JSON-able."""
    best = best_point(points, objective)
    return {
        "knob": line.axis.name,
        "workload": str(line.workload),
        "trades": trades_of(line.axis.name),
        "best": {"config": dict(best.config), "value": best.value} if best is not None else {},
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


def _plots(points: Sequence[SweepPoint], slos: SloSet, objective: Objective) -> list[str]:
    """The objective, and what the SLOs bound (without SLOs the usual price of it)."""
    if len(points) < 2:
        return []
    bounds = {c.key: c.bound for c in slos.clauses if c.key != objective.key}
    asked = bounds or dict.fromkeys(PLOTTED_WITHOUT_SLO)
    lines = []
    for key, bound in [(objective.key, None), *asked.items()]:
        bars = [
            Bar(
                setting_text(point.value),
                point.pooled.summary.get(key) if point.pooled else None,
                point.failure.splitlines()[0][:60] if point.failure else "",
            )
            for point in points
        ]
        title = f"  {key}" + (f"   ┊ {_bound_text(slos, key)}" if bound is not None else "")
        drawn = plot_lines(title, bars, bound)
        lines += ["", *drawn[:1], *(f"  {row}" for row in drawn[1:])] if drawn else []
    return lines


def _bound_text(slos: SloSet, key: str) -> str:
    return next(clause.text for clause in slos.clauses if clause.key == key)


def _verdict(point: SweepPoint, slos: SloSet) -> str:
    if point.pooled is None or not slos:
        return "–"
    return VERDICTS[point.pooled.verdict.state]
