"""What `tuner sweep` shows of each knob: one row per value, a plot, and what the knob trades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.knobs import KNOBS
from tuner.report.plot import Bar, plot_lines
from tuner.report.table import aligned, estimate_text
from tuner.report.words import VERDICTS
from tuner.search.objective import Objective
from tuner.search.sweep import LOAD_KNOBS, Config, Line, SweepPoint
from tuner.slo import Clause, SloSet
from tuner.targets.base import Setting, setting_text

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


def own_setting(line: Line, baseline: Config) -> Setting | None:
    """The swept knob's setting as it was found: the server's, or of the load as it was given."""
    if line.axis.name in LOAD_KNOBS:
        return line.workload.arrivals.level
    return baseline.get(line.axis.name)


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
    line: Line, points: Sequence[SweepPoint], slos: SloSet, objective: Objective, load: str,
    baseline: Config,
) -> list[str]:  # fmt: skip
    """What is printed of one knob at the end. load says under what the figures were measured;
    baseline: the server's own settings."""
    name, own = line.axis.name, own_setting(line, baseline)
    keys = shown_keys(slos)
    rows = [[name, *keys, "SLOs"]]
    for point in points:
        label = setting_text(point.value) + (" (own)" if point.value == own else "")
        if point.pooled is None:
            rows.append([label, *("–" for _ in keys), why_none(point)])
            continue
        figures = [estimate_text(point.pooled.summary.get(key)) for key in keys]
        rows.append([label, *figures, verdict_of(point, slos)])
    told = "  brackets: 95 % interval; n: samples"
    if any(point.value == own for point in points):
        told += "; (own): as it was found"
    lines = ["", f"  {load}", "", *aligned(rows), "", told]
    for point in points:
        lines += [f"  {name}={setting_text(point.value)}: {why}" for why in undecided_by(point)]
    lines += _plots(points, slos, objective)
    lines += ["", f"  {name} trades: {trades_of(name)}"]
    best = best_text(line, points, slos, objective)
    return [*lines, f"  {best}"] if best else lines


def best_text(line: Line, points: Sequence[SweepPoint], slos: SloSet, objective: Objective) -> str:
    """The best value in one sentence, or that none meets the SLOs; "" without a result."""
    best = best_point(points, objective)
    if best is None:
        told = "no value is shown to meet the SLOs" if slos else ""
        if any(undecided_by(point) for point in points):
            told += "; a longer --duration or more --repeat may decide"
        return told
    among = " among values that meet the SLOs" if slos else ""
    figure = estimate_text(best.pooled.summary.get(objective.key)) if best.pooled else ""
    return f"best {objective.key}{among}: {line.axis.name}={setting_text(best.value)}, {figure}"


def shown_keys(slos: SloSet) -> list[str]:
    """The figures of a table of values."""
    return list(dict.fromkeys([*COLUMNS, *(c.key for c in slos.clauses)]))


def plotted(slos: SloSet, objective: Objective) -> dict[str, Clause | None]:
    """The objective, and what the SLOs bound (without SLOs the usual price of it), with its
    clause."""
    bounded = {c.key: c for c in slos.clauses if c.key != objective.key}
    return {objective.key: None, **(bounded or dict.fromkeys(PLOTTED_WITHOUT_SLO))}


def why_none(point: SweepPoint) -> str:
    return point.failure.splitlines()[0] if point.failure else "not measured"


def sweep_dict(
    line: Line, points: Sequence[SweepPoint], objective: Objective, baseline: Config
) -> dict[str, Any]:
    """JSON-able."""
    best = best_point(points, objective)
    return {
        "knob": line.axis.name,
        "own": own_setting(line, baseline),
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
    if len(points) < 2:
        return []
    lines = []
    for key, clause in plotted(slos, objective).items():
        bars = [
            Bar(
                setting_text(point.value),
                point.pooled.summary.get(key) if point.pooled else None,
                why_none(point)[:60] if point.pooled is None else "",
            )
            for point in points
        ]
        title = f"  {key}" + (f"   ┊ {clause.text}" if clause is not None else "")
        drawn = plot_lines(title, bars, clause.bound if clause is not None else None)
        lines += ["", *drawn[:1], *(f"  {row}" for row in drawn[1:])] if drawn else []
    return lines


def undecided_by(point: SweepPoint) -> list[str]:
    """Why no verdict is told on a value, one clause a text; [] where there is one."""
    if point.pooled is None or point.pooled.verdict.state != "inconclusive":
        return []
    verdict = point.pooled.verdict
    open_ = [c for c in verdict.clauses if c.state == "inconclusive"]
    told = [f"{c.clause.text} undecided, {c.reason}" for c in open_ if c.reason]
    return [*told, *([verdict.reason] if verdict.reason else [])]


def verdict_of(point: SweepPoint, slos: SloSet) -> str:
    if point.pooled is None or not slos:
        return "–"
    return VERDICTS[point.pooled.verdict.state]
