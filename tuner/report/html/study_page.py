"""The page of a study: the answer first, then what it rests on and how far it can be trusted.

It takes a StudyReport, which is the same from the database and from a bundle.
"""

from __future__ import annotations

import itertools
from typing import Any

from tuner.report.findings import tried_in
from tuner.report.html import study_charts, study_knobs, study_tables
from tuner.report.html.page import (
    callout,
    document,
    head,
    in_twos,
    legend,
    panel,
    pill,
    section,
    stacked,
)
from tuner.report.html.study_parts import (
    FINDINGS,
    FINDINGS_LEAD,
    STAGES,
    findings,
    health,
    provenance,
    timeline,
)
from tuner.report.optimize import cautions, gain_text
from tuner.report.study import MARGIN, StudyReport
from tuner.report.study_health import checks
from tuner.report.study_text import UNCONFIRMED, changed_text, not_done, ruled_out
from tuner.report.words import ANSWERS, DOUBTFUL
from tuner.search.axis import Axis
from tuner.units import count_text, show

BADGES = {
    "improved": ("improved", "▲ improved"), "keep_baseline": ("", "keep the baseline"),
    "undecided": ("inconclusive", "? undecided"), "none_feasible": ("fail", "✘ SLOs missed"),
}  # fmt: skip
MARKS = (
    "Dot: SLOs met at 95 %; ring: undecided; broken ring: missed; cross at the foot: no result. "
    "Point at a mark for its configuration and reason."
)
LINES = "Thin lines: 95 % intervals; one that reaches the frame's edge may have no end."


def render_study_html(report: StudyReport) -> str:
    decision = report.decision
    body = [
        _head(report),
        _doubts(report),
        section(
            "Baseline and best", study_tables.sides(report, decision) if decision else "",
            "All usable runs of each taken together; small: 95 % interval and samples.",
        ),
        section(FINDINGS, findings(report, tried_in(report)), FINDINGS_LEAD),
        section("Checks", health(checks(report))),
        section("History", _history(report), f"{MARKS} {LINES}"),
        section("Pareto front", _front(report)),
        section(
            "What each knob does", _slices(report),
            "Every measurement, with the other knobs as they happened to be. " + MARKS,
        ),
        section("Knob importances", _importances(report), _importances_lead()),
        section("What the SLOs cost", _price(report), _price_lead(report)),
        section("Timeline", timeline(report), "Seconds since the study's first measurement."),
        section(_start_title(report), _flags(report), _start_doubt(report)),
        section(
            "All measurements", study_tables.measurements(report) if report.points else "",
            _count(report),
        ),
        section("Provenance", provenance(report, _searched(report))),
    ]  # fmt: skip
    return document(f"slotune · study {report.study.name}", body)


def _head(report: StudyReport) -> str:
    study, decision = report.study, report.decision
    target = study.target or {}
    model, url = (str(target.get(name) or "") for name in ("model", "url"))
    lines = [
        " · ".join(part for part in (f"study {study.name}", study.state, model, url) if part),
        report.load,
    ]
    if decision is None:
        badge = pill("fail" if report.outcomes else "", "no answer", big=True)
        return head(f"No answer: {report.no_answer}", lines, badge)
    if decision.answer != "none_feasible":
        wanted: list[Any] = list(decision.gains) if len(decision.gains) > 1 else []
        gains = [gain_text(decision, objective, gain) for objective, gain in wanted]
        lines = [*(gains or [_gain(report)]), *lines]
    title = f"{ANSWERS[decision.answer]}: {decision.reason}"
    return head(title, lines, pill(*BADGES[decision.answer], big=True))


def _gain(report: StudyReport) -> str:
    decision = report.decision
    assert decision is not None
    shown = [o for o, gain in decision.gains if gain == decision.gain]
    return gain_text(decision, shown[0] if shown else report.goal.objectives[0])


def _doubts(report: StudyReport) -> str:
    texts = []
    if report.decision is not None:
        texts += cautions(report.decision, report.goal, report.outcomes)
    if changed := changed_text(report):
        texts.append(changed)
    return callout("warn", [*texts, *not_done(report)])


def _count(report: StudyReport) -> str:
    return (
        f"{count_text(len(report.outcomes), 'measurement')} in "
        f"{count_text(len(report.points), 'trial')}; small: 95 % interval and samples."
    )


def _history(report: StudyReport) -> str:
    if not report.points:
        return ""
    key = legend(
        [*STAGES, ("cgood", "best so far, SLOs met at the point estimate"), ("cbad", "no result")]
    )
    return stacked([
        panel(
            key + study_charts.history(report, place), objective.key,
            _history_line(report, place),
        )
        for place, objective in enumerate(report.goal.objectives)
    ])  # fmt: skip


def _history_line(report: StudyReport, place: int) -> str:
    unit = report.unit(place)
    base = study_charts.baseline_value(report, place)
    told = "no data" if base is None else show(base, unit)
    wanted = ", ".join(part for part in (str(report.goal.objectives[place]), unit) if part)
    return f"{wanted}; dashed: the baseline's mean, {told}"


def _front(report: StudyReport) -> str:
    objectives = report.goal.objectives
    if len(objectives) < 2:
        return ""
    listed = study_tables.front_table(report)
    if not listed:
        return panel("", "", "no configuration met the SLOs: there is no front")
    key = legend([*STAGES, ("cgood", "front")])
    drawn = [
        panel(key + study_charts.front(report, places), f"{objectives[places[1]]} (up) against "
              f"{objectives[places[0]]} (across)")
        for places in itertools.combinations(range(len(objectives)), 2)
    ]  # fmt: skip
    return stacked([*drawn, panel(listed, "", "none of these is beaten in every objective")])


def _slices(report: StudyReport) -> str:
    if not report.points or not report.axes:
        return ""
    slos = bool(report.goal.slos) and MARGIN in report.importances
    key = report.goal.objectives[0].key
    panels = []
    for axis in report.axes:
        drawn = study_knobs.slice_of(report, axis, margins=False)
        panels.append(panel(drawn, f"{key} against {axis.name}", report.unit(0)))
        if slos:
            drawn = study_knobs.slice_of(report, axis, margins=True)
            line = "dashed: the bound; above it is missed"
            panels.append(panel(drawn, f"worst figure over its bound against {axis.name}", line))
    parts = [legend(STAGES), in_twos(panels)]
    if len(report.axes) > 1:
        across, up = _two(report)
        drawn = study_knobs.heat(report, across, up)
        title = f"{key} over {across.name} (across) and {up.name} (up)"
        parts.append(panel(drawn, title, study_knobs.heat_range(report)))
    return stacked(parts)


def _two(report: StudyReport) -> tuple[Axis, Axis]:
    """The two knobs that matter most, where that can be told; else the first two."""
    found = report.importances.get(report.goal.objectives[0].key)
    order = [share.knob for share in found.shares] if found is not None else []
    known = sorted(report.axes, key=lambda a: order.index(a.name) if a.name in order else 99)
    return known[0], known[1]


def _importances(report: StudyReport) -> str:
    drawn = [study_tables.importance(key, found) for key, found in report.importances.items()]
    return in_twos(drawn)


def _importances_lead() -> str:
    return (
        "PED-ANOVA of Optuna: how differently the best measurements lie on a knob than all of them "
        "do, as shares of all knobs. Measurements without a result are left out."
    )


def _price(report: StudyReport) -> str:
    parts = []
    for ladder in report.ladders:
        title = ladder.clause.text
        if ladder.why_not:
            parts.append(panel("", title, f"cannot tell: {ladder.why_not}"))
            continue
        drawn = study_charts.price(report, ladder)
        open_ = any(r.config is not None and not r.confirmed for r in ladder.rungs)
        line = UNCONFIRMED if open_ else ""
        parts.append(panel(drawn + study_tables.ladder_table(ladder), title, line))
    return stacked(parts)


def _price_lead(report: StudyReport) -> str:
    return (
        f"The best {report.goal.objectives[0].key} among the configurations that meet every SLO at "
        "their point estimate, if this bound alone were another one: stored measurements judged "
        "again, nothing measured anew. Dot: confirmation runs; ring: search alone."
    )


def _start_title(report: StudyReport) -> str:
    decision = report.decision
    kept = decision is not None and decision.recommends and decision.best_config is None
    return "Start a server with the baseline" if kept else "Start a server with it"


def _start_doubt(report: StudyReport) -> str:
    decision = report.decision
    doubtful = decision is not None and decision.doubtful
    return f"The best candidate, {DOUBTFUL}." if doubtful else ""


def _flags(report: StudyReport) -> str:
    decision = report.decision
    if decision is None or not decision.recommends:
        return panel("", "", "no configuration is recommended")
    return study_tables.flags(report, decision)


def _searched(report: StudyReport) -> list[tuple[str, object]]:
    """Facts that only a search has."""
    return [
        ("objectives", ", ".join(map(str, report.goal.objectives))),
        ("price per hour", (report.study.space or {}).get("price_per_hour")),
        *((f"ruled out by arithmetic: {why}", n) for why, n in ruled_out(report).items()),
    ]
