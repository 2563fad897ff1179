"""A study as the page sees it: its measurements in order, each classed and given its reason.

Pure: stored rows in, points out. A measurement without a result never gets a value, so it can
neither be plotted as 0 nor become the best.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dashboard.format import interval
from storage import Measurement, Study
from tuner.errors import UserError
from tuner.search.objective import CAPACITY
from tuner.slo import VERDICTS
from tuner.slo.names import METRICS
from tuner.targets.base import config_text as written
from tuner.workload import Workload

Outcome = Literal["met", "missed", "undecided", "unjudged", "failed", "invalid"]

_ELIGIBLE = ("met", "unjudged")
_AS_SHOWN = {"share": "ratio"}


def unit_of(figure: str) -> str:
    """`ttft_p95` → s, `attainment` → ratio; "" for what no table names."""
    metric = METRICS.get(figure) or METRICS.get(figure.partition("_")[0])
    return _AS_SHOWN.get(metric.unit, metric.unit) if metric is not None else ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval in the unit's base (seconds, ratio, tok/s); None: not known."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement. order counts from 1; the objective has no value unless the measurement has a
    result; reason then says why."""

    order: int
    measurement_id: int
    stage: str
    outcome: Outcome
    config: Mapping[str, Any]
    objective: Estimate
    figures: Mapping[str, Estimate]
    reason: str
    started_at_s: float
    duration_s: float | None
    load: str = ""

    @property
    def drawn_as(self) -> Outcome | Literal["no result"]:
        """Without a figure it is no point of the verdict that its other figures had."""
        scored = self.objective.value is not None or self.outcome in ("failed", "invalid")
        return self.outcome if scored else "no result"


@dataclass(frozen=True, slots=True)
class Objective:
    """`maximize output_tps`: the direction and the summary figure.

    A capacity is no figure of one measurement: each stands for the level that it offered.
    """

    metric: str
    maximize: bool
    unit: str

    @property
    def is_capacity(self) -> bool:
        return self.metric == CAPACITY

    def better(self, a: float, b: float) -> bool:
        return a > b if self.maximize else a < b


def parse_objective(text: str | None, workload: Mapping[str, Any] | None = None) -> Objective:
    """workload: the study's, which says in what a capacity is counted."""
    words = (text or "").replace("=", " ").replace(":", " ").split()
    if not words:
        return Objective("output_tps", True, unit_of("output_tps"))
    metric = words[-1]
    unit = level_unit(workload) if metric == CAPACITY else unit_of(metric)
    return Objective(metric, not words[0].lower().startswith("min"), unit)


def loads_of(study: Study) -> tuple[str, ...]:
    """The texts of the loads that it is measured under; () where it names none."""
    first = study.workload or {}
    texts = (one.get("text") for one in (first, *(first.get("also") or ())))
    return tuple(str(text) for text in texts if text)


def objectives_text(study: Study) -> str:
    """`maximize output_tps and minimize ttft_p95`; "" where it has none."""
    return " and ".join((study.space or {}).get("objectives") or [study.objective or ""])


def without_result(found: Sequence[Point]) -> str:
    """`2 failed, 1 invalid`: of those that have no figure; "" where all have one."""
    counts = Counter(p.outcome for p in found if p.objective.value is None)
    named = [f"{counts.pop(word)} {word}" for word in ("failed", "invalid") if word in counts]
    rest = sum(counts.values())
    return ", ".join([*named, *([f"{rest} without a figure"] if rest else [])])


def level_unit(workload: Mapping[str, Any] | None) -> str:
    load = _load(workload)
    return "" if load is None else load.arrivals.unit


def _load(stored: Mapping[str, Any] | None) -> Workload | None:
    """None where a stored load cannot be read any more: its file is gone."""
    try:
        return Workload.from_dict(dict(stored or {}))
    except (KeyError, UserError):
        return None


def points(measurements: Sequence[Measurement], objective: Objective) -> list[Point]:
    ordered = sorted(measurements, key=lambda m: (m.started_at_s, m.id))
    return [_point(order, m, objective) for order, m in enumerate(ordered, start=1)]


def best_after_each(found: Sequence[Point], objective: Objective) -> list[Point | None]:
    """After each measurement the best that met every SLO (or that had none to meet).

    A configuration counts as it was measured last: a confirmation may take back a result. For a
    capacity it counts with the highest level it has met below every level it has missed.
    """
    if objective.is_capacity:
        return _highest_level_after_each(found)
    latest: dict[str, Point] = {}
    line: list[Point | None] = []
    for point in found:
        if point.objective.value is not None:
            latest[config_text(point.config)] = point
        line.append(_best([p for p in latest.values() if p.outcome in _ELIGIBLE], objective))
    return line


def _highest_level_after_each(found: Sequence[Point]) -> list[Point | None]:
    by_config: dict[str, list[Point]] = {}
    line: list[Point | None] = []
    for point in found:
        if point.objective.value is not None:
            by_config.setdefault(config_text(point.config), []).append(point)
        highest = [_highest_met(points) for points in by_config.values()]
        line.append(max((p for p in highest if p is not None), key=_level, default=None))
    return line


def _highest_met(points: Sequence[Point]) -> Point | None:
    missed = min((_level(p) for p in points if p.outcome == "missed"), default=math.inf)
    met = [p for p in points if p.outcome in _ELIGIBLE and _level(p) < missed]
    return max(met, key=_level, default=None)


def _level(point: Point) -> float:
    return point.objective.value or 0.0


def best_so_far(found: Sequence[Point], objective: Objective) -> Point | None:
    line = best_after_each(found, objective)
    return line[-1] if line else None


def _best(candidates: Sequence[Point], objective: Objective) -> Point | None:
    best: Point | None = None
    for point in candidates:
        value = point.objective.value
        if value is None:
            continue
        if best is None or objective.better(value, best.objective.value or 0.0):
            best = point
    return best


def baseline(found: Sequence[Point]) -> Point | None:
    return next((p for p in found if p.stage == "baseline" and p.objective.value is not None), None)


def same_config(found: Sequence[Point], config: Mapping[str, Any]) -> list[Point]:
    return [point for point in found if dict(point.config) == dict(config)]


def config_text(config: Mapping[str, Any]) -> str:
    """As the tuner writes it; what is stored as not known is left out."""
    return written({name: value for name, value in config.items() if value is not None})


def estimate(figure: Mapping[str, Any], unit: str = "") -> Estimate:
    """A stored figure: value, low, high, n, unit."""
    return Estimate(
        _number(figure.get("value")),
        _number(figure.get("low")),
        _number(figure.get("high")),
        figure.get("n"),
        {"share": "ratio"}.get(figure.get("unit") or "", figure.get("unit") or unit),
    )


def _point(order: int, row: Measurement, objective: Objective) -> Point:
    outcome = _outcome(row)
    figures = {
        name: estimate(figure, unit_of(name))
        for name, figure in ((row.summary or {}).get("figures") or {}).items()
        if isinstance(figure, Mapping)
    }
    measured = outcome not in ("failed", "invalid")
    found = Estimate(None)
    if measured and objective.is_capacity:
        load = _load(row.workload)
        found = Estimate(load.arrivals.level if load else None, unit=objective.unit)
    elif measured:
        found = figures.get(objective.metric, found)
    lacks = _lacks(found, objective) if measured else ""
    return Point(
        order=order,
        measurement_id=row.id,
        stage=row.stage,
        outcome=outcome,
        config=row.config,
        objective=Estimate(None) if lacks else found,
        figures=figures,
        reason="; ".join(filter(None, (lacks, _reason(row, outcome)))),
        started_at_s=row.started_at_s,
        duration_s=row.duration_s,
        load=str((row.workload or {}).get("text", "")),
    )


def _lacks(found: Estimate, objective: Objective) -> str:
    """Why a measurement has no score, "" where it has: a failed request's latency is infinite."""
    if found.value is not None:
        finite = math.isfinite(found.value)
        return "" if finite else f"{objective.metric} is infinite: too many requests failed"
    cause = "its load cannot be read" if objective.is_capacity else "it was not measured"
    return f"no {objective.metric}: {cause}"


def _outcome(row: Measurement) -> Outcome:
    if row.state == "invalid":
        return "invalid"
    if row.state != "ok":
        return "failed"
    return outcome_of(row.verdict or {})


def outcome_of(verdict: Mapping[str, Any]) -> Outcome:
    """A verdict that asked for nothing judges nothing."""
    if not verdict.get("clauses"):
        return "unjudged" if verdict.get("state") != "fail" else "missed"
    return VERDICTS.get(str(verdict.get("state", "")), "unjudged")


def _reason(row: Measurement, outcome: Outcome) -> str:
    if outcome in ("failed", "invalid"):
        kind = f" ({row.failure_kind})" if row.failure_kind else ""
        return f"{row.failure_reason or row.state}{kind}"
    return unmet_text(row.verdict or {})


def unmet_text(verdict: Mapping[str, Any]) -> str:
    """Every clause that is not met, with its figure; "" where all are."""
    unmet = [c for c in verdict.get("clauses", ()) if c.get("state") != "pass"]
    return "; ".join([_unmet(clause) for clause in unmet] or [str(verdict.get("reason") or "")])


def _unmet(clause: Mapping[str, Any]) -> str:
    """`ttft_p95<500ms: 710 ms (640 ms … 790 ms)`, with the reason where there is one."""
    stored = clause.get("estimate")
    figure = estimate(stored) if isinstance(stored, Mapping) else Estimate(None)
    parts = [interval(figure.value, figure.low, figure.high, figure.unit)] if figure.value else []
    if clause.get("reason"):
        parts.append(str(clause["reason"]))
    return f"{clause.get('clause', 'SLO')}: {', '.join(parts) or 'not met'}"


def _number(value: Any) -> float | None:
    """JSON has no infinity: it is stored as "inf". NaN and anything else is no number."""
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)
