"""A stored study of `tuner sweep`: each knob's values as they were measured, in text and as JSON.

Invariant: which values a knob was given follows from what was asked, so that one that was not
measured yet is told as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.diagnosis.model import Lever
from tuner.errors import UserError
from tuner.exchange.bundle import StoredStudy
from tuner.report.findings import Tried, findings_dict, findings_lines
from tuner.report.recorded import Recorded, recorded
from tuner.report.study_health import check_dicts, check_lines, measured_checks
from tuner.report.study_text import began_as, not_done
from tuner.report.sweep import best_point, sweep_dict, sweep_lines, verdict_of, why_none
from tuner.report.table import estimate_text
from tuner.report.words import load_text
from tuner.search.objective import Objective, objective_from_text
from tuner.search.space import joint_space, parse_axis
from tuner.search.sweep import LOAD_RANGES, Line, SweepPoint, lines_of, load_lines, points_of
from tuner.targets.base import KnobRange, setting_text
from tuner.units import count_text
from tuner.verify.proposal import direction_of

MOST_POINTS = 10_000
"""No axis has so many settings."""

NOTHING_TURNED = "no knob of this server could be turned, so that nothing was swept"


@dataclass(frozen=True, slots=True)
class SweepReport(Recorded):
    """found: each knob under each load with its points. unread: what of the sweep's own options
    this version cannot read."""

    objective: Objective
    found: tuple[tuple[Line, tuple[SweepPoint, ...]], ...]
    unread: str

    def load_of(self, line: Line) -> str:
        budget = self.study.budget or {}
        return load_text(
            line.workload, self.study.seed or 0, float(budget.get("window_s") or 0.0),
            float(budget.get("warmup_s") or 0.0),
        )  # fmt: skip

    @property
    def not_diagnosed(self) -> str:
        return "not diagnosed: its knobs were named, or its server exports nothing that tells"

    @property
    def headline(self) -> str:
        """In one sentence: which values are shown to meet the SLOs."""
        if not self.outcomes:
            return f"No data: the sweep is {self.study.state} and holds no measurement"
        if not self.found:
            return self.unread or NOTHING_TURNED
        names = ", ".join(dict.fromkeys(line.axis.name for line, _ in self.found))
        if not self.slos:
            return f"Swept: {names}"
        best = [best_point(points, self.objective) for _, points in self.found]
        met = sum(one is not None for one in best)
        if len(best) == 1:
            return f"Swept {names}: {'a' if met else 'no'} value is shown to meet the SLOs"
        return f"Swept {names}: {met} of {len(best)} have a value that is shown to meet the SLOs"


def sweep_report(stored: StoredStudy) -> SweepReport:
    """Raises UserError, StorageError."""
    base = recorded(stored)
    objective = objective_from_text(base.study.objective or str(Objective()))
    unread, lines = "", list[Line]()
    try:
        lines = _lines(base)
    except UserError as error:
        unread = f"this version cannot read what was swept ({error})"
    found = tuple((line, tuple(points_of(line, base.outcomes, base.slos))) for line in lines)
    return SweepReport(**base.parts(), objective=objective, found=found, unread=unread)


def _lines(base: Recorded) -> list[Line]:
    """As the sweep itself had them; the server's bounds, which it kept to, are not stored."""
    space = base.study.space or {}
    points = min(int((base.study.budget or {})["points"]), MOST_POINTS)
    lines: list[Line] = []
    if texts := list(space.get("axes") or []):
        knobs = {name: KnobRange(value, 1, 0, False) for name, value in base.baseline.items()}
        of_server = joint_space(knobs, texts, constraints=space.get("constraints") or [])
        lines += lines_of(of_server, base.workloads, points, base.baseline)
    for text in space.get("load_knobs") or []:
        axis = parse_axis(text, LOAD_RANGES)
        lines += load_lines(axis, base.workloads, points, base.baseline)
    return lines


def sweep_report_lines(report: SweepReport) -> list[str]:
    lines = [report.headline, *not_done(report)]
    if report.unread and report.unread != report.headline:
        lines.append(f"caution: {report.unread}")
    lines += findings_lines(report, swept_in(report))
    for line, points in report.found:
        lines += sweep_lines(
            line, points, report.slos, report.objective, report.load_of(line), report.baseline
        )
    lines += check_lines(measured_checks(report.outcomes))
    return [*lines, "", f"study {report.study.name}", *began_as(report)]


def sweep_report_dict(report: SweepReport) -> dict[str, Any]:
    """JSON-able."""
    return {
        "study": report.study.name,
        "state": report.study.state,
        "answer": "swept" if report.found else None,
        "reason": report.headline,
        "slos": str(report.slos),
        "sweeps": [_sweep(report, line, points) for line, points in report.found],
        "checks": check_dicts(measured_checks(report.outcomes)),
    } | findings_dict(report, swept_in(report))


def swept_in(report: SweepReport) -> Tried:
    """The values of a lever's knob that lie in its direction."""

    def told(lever: Lever) -> list[str]:
        return [
            f"{lever.knob}={setting_text(point.value)}: {_point_text(report, point)}"
            for line, points in report.found
            if line.axis.name == lever.knob
            for point in points
            if direction_of(report.baseline[lever.knob], point.value) == lever.direction
            and point.value != report.baseline[lever.knob]
        ]

    return told


def _point_text(report: SweepReport, point: SweepPoint) -> str:
    if point.pooled is None:
        return why_none(point)
    figure = estimate_text(point.pooled.summary.get(report.objective.key))
    slos = f", SLOs {verdict_of(point, report.slos)}" if report.slos else ""
    return f"{report.objective.key} {figure}, {count_text(point.pooled.runs, 'run')}{slos}"


def _sweep(report: SweepReport, line: Line, points: Sequence[SweepPoint]) -> dict[str, Any]:
    return sweep_dict(line, points, report.objective, report.baseline)
