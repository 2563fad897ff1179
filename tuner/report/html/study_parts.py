"""The parts that pages of all kinds of studies share: findings, checks, timeline, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tuner.diagnosis.model import NodeResult, State
from tuner.report.findings import Advised, Tried, advised, unjudged, untried, why_nothing
from tuner.report.html import study_charts, study_tables
from tuner.report.html.page import facts, legend, panel, pill, stacked, table, when
from tuner.report.html.study_plot import look_of
from tuner.report.recorded import Recorded
from tuner.report.study_health import Check
from tuner.targets.base import config_text
from tuner.units import show

CHECK_PILLS = {
    "fine": ("pass", "✔ fine"), "look": ("inconclusive", "! look"), "unknown": ("", "cannot tell"),
}  # fmt: skip
STAGES = [("c4", "baseline"), ("c2", "sweep"), ("c1", "search"), ("c3", "confirm")]
NODE_LOOKS = {State.CRITICAL: "fail", State.WARNING: "inconclusive"}
FINDINGS = "Findings of the baseline"
FINDINGS_LEAD = (
    "What the diagnosis of the baseline's metrics found, most urgent first, what it proposes to "
    "turn, and what came of that here."
)


def findings(report: Recorded, tried: Tried = untried) -> str:
    """Each cause with its levers and what came of them; symptoms; what could not be judged."""
    why, told = why_nothing(report), unjudged(report)
    parts = [panel("", "", why)] if why else []
    if report.diagnosis is not None:
        advice = advised(report, tried)
        parts += [
            _cause(node, [one for one in advice if one.node is node])
            for node in report.diagnosis.causes
        ]
        symptoms = [[f"follows from {n.symptom_of}", *_node(n)] for n in report.diagnosis.symptoms]
        if symptoms:
            rows = [[node, state, escape(text)] for text, node, state in symptoms]
            parts.append(panel(table(("", "", ""), rows, ("", "", "dim wrap"))))
    if told:
        parts.append(panel("", "", told))
    return stacked(parts)


def _node(node: NodeResult) -> list[str]:
    name = f'<span class="dim">{escape(node.key)}</span> {escape(node.title)}'
    return [name, pill(NODE_LOOKS.get(node.state, ""), node.state.value)]


def _cause(node: NodeResult, mine: Sequence[Advised]) -> str:
    rows = [
        [
            f'<b>{escape(one.lever.title)}</b><br><span class="dim">{escape(one.lever.effect)}; '
            f"its cost: {escape(one.lever.cost)}</span>",
            "".join(f"<div>{escape(text)}</div>" for text in one.told),
        ]
        for one in mine
    ]
    name, state = _node(node)
    head = f'<div class="row"><h3>{name}</h3>{state}</div><div class="dim">'
    listed = table(("proposed", "what came of it"), rows, ("wrap", "wrap came"))
    return panel(f"{head}{escape(node.summary)}</div>{listed}")


def health(checks: Sequence[Check]) -> str:
    rows = [
        [escape(check.name), pill(*CHECK_PILLS[check.state]), escape(check.text)]
        for check in checks
    ]
    return panel(table(("", "", ""), rows, ("", "", "dim wrap")))


def timeline(report: Recorded) -> str:
    if not report.outcomes:
        return ""
    stages = {look_of(outcome.stage) for outcome in report.outcomes}
    shown = [(look, name) for look, name in STAGES if f"s{look[1:]}" in stages]
    failed = [] if all(o.ok for o in report.outcomes) else [("cbad", "no result")]
    parts = [panel(legend([*shown, *failed]) + study_charts.timeline(report))]
    if told := study_tables.failures(report):
        parts.append(panel(told, "Measurements without a result"))
    return stacked(parts)


def provenance(report: Recorded, more: Sequence[tuple[str, object]] = ()) -> str:
    """more: facts that this kind of study has beside those of every one."""
    study = report.study
    space, budget, target = study.space or {}, study.budget or {}, study.target or {}
    seeds = sorted({outcome.seed for outcome in report.outcomes})
    told = [(f"target {name}".replace("_", " "), value) for name, value in target.items()
            if value not in (None, "", [], {}) and name != "original_config"]  # fmt: skip
    return panel(facts([
        ("study", study.name), ("state", study.state), ("began", when(study.created_at_s)),
        ("last written", when(study.updated_at_s)), ("command", study.command),
        ("SLOs", study.slos), ("loads", " and ".join(report.loads)), ("seed", study.seed),
        ("seeds of the measurements", ", ".join(map(str, seeds))),
        ("searched", "; ".join(map(str, space.get("axes") or []))),
        ("constraints", "; ".join(map(str, space.get("constraints") or []))),
        ("fixed", config_text(space.get("fixed") or {}, none="")),
        ("quality file", space.get("quality") or budget.get("quality")),
        ("budget", budget.get("text")), ("measured from", "; ".join(report.machines)),
        ("spent", show(sum(o.spent_s for o in report.outcomes), "s") if report.outcomes else ""),
        *more, *told,
    ]))  # fmt: skip
