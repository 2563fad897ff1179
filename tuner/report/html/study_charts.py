"""The charts of a study: history, Pareto front, what its SLOs cost, when it was measured."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tuner.report.html.scale import Scale, drawn_end
from tuner.report.html.study_plot import (
    Chart,
    Named,
    finite,
    look_of,
    near,
    spread,
)
from tuner.report.html.svg import BOTTOM, LEFT, RIGHT, TOP
from tuner.report.recorded import Recorded
from tuner.report.study import StudyReport
from tuner.report.study_points import Point
from tuner.report.words import VERDICTS
from tuner.search.front import front_of
from tuner.search.price import Ladder
from tuner.stats import Estimate
from tuner.targets.base import config_text
from tuner.units import show

WIDE = (980, 240)
SQUARE = (980, 330)
LANES = (980, 150)
LADDER = (980, 190)


def history(report: StudyReport, place: int) -> str:
    """An objective of every trial in order of time, with the baseline and the best so far."""
    width, height = WIDE
    points = report.points
    unit = report.unit(place)
    values = finite([p.reading.values[place] for p in points])
    base = baseline_value(report, place)
    ends = [e for p in points if (e := p.estimates[place]) is not None and e.measured]
    highs = [drawn_end(e.value, e.high) for e in ends if math.isfinite(e.value)]
    known = [*values[np.isfinite(values)], *highs, *([base] if base is not None else [])]
    x = Scale(0.5, max(len(points), 1) + 0.5, LEFT, width - RIGHT)
    y = spread(known, height - BOTTOM, TOP, unit)
    objective = report.goal.objectives[place]
    chart = Chart(width, height, x, y, f"{objective.key} of each measurement, in order of time")
    chart.grid(x_ticks=min(12, max(1, len(points))), y_ticks=4)
    if not known:
        chart.note("no data: nothing has a value")
    for point in points:
        _trial(chart, point, place, unit)
    if base is not None:
        chart.mark_y(base, "", "base")
    numbers, best = best_so_far(report, place)
    if len(numbers):
        at = np.append(numbers, len(points) + 0.5)
        chart.step(at, np.append(best, best[-1]), "best", "best so far that met the SLOs")
    return chart.svg()


def _trial(chart: Chart, point: Point, place: int, unit: str) -> None:
    value, estimate = point.reading.values[place], point.estimates[place]
    if value is None or not math.isfinite(value):
        chart.no_result(point.number, f"{point.number} {title_of(point)}")
        return
    look = look_of(point.trial.stage)
    if estimate is not None and estimate.measured:
        chart.whisker(point.number, estimate.low, estimate.high, look)
    told = f"{point.number} {title_of(point)}: {figure(value, estimate, unit)}"
    chart.mark(point.number, value, look, told, point.state)


def baseline_value(report: StudyReport, place: int) -> float | None:
    """Mean over the baseline's trials, as the points are counted."""
    mine = [p.reading.values[place] for p in report.points if p.trial.config == report.baseline]
    known = [value for value in mine if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None


def best_so_far(report: StudyReport, place: int) -> tuple[list[float], list[float]]:
    """(number, best value until then) of the trials before the confirmation that met the SLOs at
    their point estimate."""
    objective = report.goal.objectives[place]
    numbers: list[float] = []
    best: list[float] = []
    for point in report.points:
        value = point.reading.values[place]
        if point.trial.stage == "confirm" or not point.reading.meets or value is None:
            continue
        if not best or objective.better(value, best[-1]):
            numbers.append(float(point.number))
            best.append(value)
    return numbers, best


def title_of(point: Point) -> str:
    why = f" ({point.why})" if point.why else ""
    state = point.why if point.state == "none" else f"SLOs {VERDICTS[point.state]}{why}"
    early = f", ended early: {point.early}" if point.early else ""
    return f"{point.trial.stage} {config_text(point.trial.config)} · {state}{early}"


def figure(value: float, estimate: Estimate | None, unit: str) -> str:
    """`131 tok/s (95 % interval 112 tok/s to 150 tok/s, n 300)`."""
    told = show(value, unit)
    if estimate is None or not estimate.measured:
        return told
    ends = f"{show(estimate.low, unit)} to {show(estimate.high, unit)}"
    return f"{told} (95 % interval {ends}, n {estimate.n:,})"


def front(report: StudyReport, places: tuple[int, int]) -> str:
    """Two objectives against each other; the front's points joined, with their intervals."""
    width, height = SQUARE
    objectives = [report.goal.objectives[place] for place in places]
    units = [report.unit(place) for place in places]
    drawn = [p for p in report.points if all(p.reading.values[i] is not None for i in places)]
    chosen = front_of(report.goal, report.trials)
    figures = [[p.pooled.summary[o.key] for o in objectives] for p in chosen]
    seen: list[list[float]] = [
        [float(p.reading.values[place] or 0.0) for p in drawn]
        + ([one[i].value for one in figures] if len(report.goal.loads) == 1 else [])
        for i, place in enumerate(places)
    ]
    x = spread(seen[0], LEFT, width - RIGHT, units[0])
    y = spread(seen[1], height - BOTTOM, TOP, units[1])
    chart = Chart(width, height, x, y, f"{objectives[1].key} against {objectives[0].key}")
    chart.grid(x_ticks=8, y_ticks=5)
    for point in drawn:
        a, b = (float(point.reading.values[place] or 0.0) for place in places)
        told = f"{point.number} {title_of(point)}"
        chart.mark(a, b, look_of(point.trial.stage), told, point.state)
    if len(report.goal.loads) > 1:  # a trial is worth a ratio, and has no interval of its own
        configs = [point.config for point in chosen]
        for point in (p for p in drawn if p.trial.config in configs):
            a, b = (float(point.reading.values[place] or 0.0) for place in places)
            chart.mark(a, b, "best", f"front: {config_text(point.trial.config)}")
        return chart.svg()
    pairs = sorted((one[0].value, one[1].value) for one in figures)
    if len(report.goal.objectives) == 2:  # of three, the front is no line in a plane
        chart.line(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]), "best")
    for member, (first, second) in zip(chosen, figures, strict=True):
        chart.across(second.value, first.low, first.high, "best")
        chart.whisker(first.value, second.low, second.high, "best")
        chart.mark(first.value, second.value, "best", f"front: {config_text(member.config)}")
    return chart.svg()


def timeline(report: Recorded) -> str:
    """When each measurement ran, a lane for each stage; those without a result are red."""
    width, height = LANES
    outcomes = report.outcomes
    start_s = min(o.started_at_s for o in outcomes)
    end_s = max(o.started_at_s + o.spent_s for o in outcomes)
    lanes = [stage for stage in ("confirm", "search", "sweep", "baseline", "bench")
             if any(o.stage == stage for o in outcomes)]  # fmt: skip
    x = Scale(0.0, max(end_s - start_s, 1e-6), LEFT, width - RIGHT, "s")
    y = Named.of(lanes, height - BOTTOM, TOP)
    chart = Chart(width, height, x, y, "When each measurement ran")
    chart.grid(x_ticks=10)
    for number, outcome in enumerate(outcomes, 1):
        began_s = outcome.started_at_s - start_s
        look = look_of(outcome.stage) if outcome.ok else "sbad"
        why = "" if outcome.ok else f" · {outcome.state}: {outcome.failure_reason[:200]}"
        told = (
            f"{number} {outcome.stage} {config_text(outcome.config)} · at {show(began_s, 's')}, "
            f"{show(outcome.spent_s, 's')} long{why}"
        )
        lane = float(lanes.index(outcome.stage))
        chart.bar(began_s, began_s + outcome.spent_s, lane, 0.32, look, told)
    return chart.svg()


def price(report: StudyReport, ladder: Ladder) -> str:
    """The best configuration's objective at each bound of the ladder, with its interval."""
    width, height = LADDER
    objective = report.goal.objectives[0]
    known = [r for r in ladder.rungs if r.estimate is not None and r.estimate.measured]
    unit = known[0].estimate.unit if known and known[0].estimate is not None else ""
    bounds = [rung.bound for rung in ladder.rungs]
    x = near(bounds, LEFT, width - RIGHT, ladder.unit, log=True)
    found = [r.estimate for r in known if r.estimate is not None]
    values = [one.value for one in found]
    highs = [drawn_end(one.value, one.high) for one in found]
    y = spread([*values, *highs], height - BOTTOM, TOP, unit)
    chart = Chart(width, height, x, y, f"Best {objective.key} by the bound of {ladder.clause.key}")
    chart.grid(x_ticks=5, y_ticks=4)
    if not known:
        chart.note("no configuration meets any of these bounds")
    for a, b in itertools.pairwise(known):
        if a.estimate is not None and b.estimate is not None:
            pair = np.array([a.bound, b.bound]), np.array([a.estimate.value, b.estimate.value])
            chart.line(*pair, "faintline")
    for rung in known:
        if rung.estimate is None:
            continue
        look = "s3" if rung.confirmed else "s1"
        chart.whisker(rung.bound, rung.estimate.low, rung.estimate.high, look)
        told = f"{ladder.bound_text(rung)}: {figure(rung.estimate.value, rung.estimate, unit)}"
        chart.mark(
            rung.bound,
            rung.estimate.value,
            look,
            told,
            "pass" if rung.confirmed else "inconclusive",
        )
    chart.mark_x(ladder.clause.bound, ladder.clause.text, "bound")
    return chart.svg()
