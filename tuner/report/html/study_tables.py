"""The tables of a study's page: both sides, checks, importances, what SLOs cost, measurements."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tuner.report.flags import FORMS, exported_text
from tuner.report.front import front_dicts
from tuner.report.html.page import panel, pill, range_text, stacked, table
from tuner.report.html.scale import Scale
from tuner.report.optimize import SHOWN
from tuner.report.recorded import Recorded
from tuner.report.study import StudyReport
from tuner.report.study_points import Point
from tuner.report.study_text import how_known, order_text, served
from tuner.search.decide import Decision
from tuner.search.importance import Importances
from tuner.search.price import Ladder, Rung
from tuner.slo.pooled import Pooled
from tuner.stats import Estimate
from tuner.targets.base import config_text, setting_text
from tuner.targets.flags import DIALECTS
from tuner.units import show

NO_RESULT = {"failed": "fail", "invalid": "inconclusive", "aborted": "inconclusive"}
FORM_TITLES = {
    "slotune": "this engine", "vllm": "vllm serve", "sglang": "SGLang",
    "env": "environment file", "compose": "docker compose", "helm": "Helm values",
}  # fmt: skip
MOST_POINTS = 500


Side = tuple[str, Pooled]


def sides(report: StudyReport, decision: Decision) -> str:
    """Baseline against best: knobs, every figure with interval and samples, the SLOs; under
    several loads the worst figures first, then each load's."""
    configs = [decision.baseline_config]
    shown: list[Side] = [("baseline", decision.baseline)]
    if decision.best_config is not None and decision.best is not None:
        configs.append(decision.best_config)
        shown.append(("best", decision.best))
    rows = [
        [escape(knob), *(escape(setting_text(config.get(knob, "–"))) for config in configs)]
        for knob in decision.baseline_config
    ]
    rows.append(["runs", *(str(pooled.runs) for _, pooled in shown)])
    several = bool(decision.baseline.by_load)
    told = "the worst of all loads" if several else ""
    parts = [panel(_side_table(report, shown, rows, clauses=not several), "", told)]
    for place, (load, _) in enumerate(decision.baseline.by_load):
        each = [(name, pooled.by_load[place][1]) for name, pooled in shown]
        parts.append(panel(_side_table(report, each, [], clauses=True), f"load {load}"))
    return stacked(parts)


def _side_table(
    report: StudyReport, shown: Sequence[Side], first: list[list[str]], *, clauses: bool
) -> str:
    rows = list(first)
    wanted = [o.key for o in report.goal.objectives] + [c.key for c in report.goal.slos.clauses]
    for key in dict.fromkeys([*wanted, *SHOWN]):
        figures = [pooled.summary.get(key) for _, pooled in shown]
        if any(figure is not None for figure in figures):
            rows.append([escape(key), *(cell(figure) for figure in figures)])
    if clauses:
        rows += _clauses([pooled for _, pooled in shown])
    return table(("", *(name for name, _ in shown)), rows, ("key", *("num" for _ in shown)))


def _clauses(shown: Sequence[Pooled]) -> list[list[str]]:
    rows = []
    for clauses in zip(*(pooled.verdict.clauses for pooled in shown), strict=False):
        cells = [
            pill(one.state) + (f'<br><span class="dim">{escape(one.reason)}</span>'
                               if one.reason else "")
            for one in clauses
        ]  # fmt: skip
        rows.append([escape(clauses[0].clause.text), *cells])
    return rows


def cell(estimate: Estimate | None) -> str:
    """A figure over its interval and samples; what was not measured says why."""
    if estimate is None:
        return "–"
    if not estimate.measured:
        return f'no data<br><span class="dim">{escape(estimate.reason)}</span>'
    value = escape(show(estimate.value, estimate.unit))
    return f'{value}<br><span class="dim">{escape(range_text(estimate))} · n {estimate.n:,}</span>'


def importance(title: str, found: Importances) -> str:
    if found.why_not:
        return panel("", title, f"cannot tell: {found.why_not} (n {found.n:,})")
    rows = [
        [
            escape(share.knob), f"{share.value:.0%}", f"{share.low:.0%} … {share.high:.0%}",
            _share(share.value, share.low, share.high),
        ]
        for share in found.shares
    ]  # fmt: skip
    header = ("knob", "share", "95 % interval", "")
    return panel(table(header, rows, ("key", "num", "num dim", "")), title, order_text(found))


def _share(value: float, low: float, high: float) -> str:
    """A share from 0 to 1 with its interval."""
    width, height = 220, 18
    x = Scale(0.0, 1.0, 3, width - 3)
    at, a, b = (x.at(part) for part in (value, low, high))
    return (
        f'<svg class="share" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<rect class="share-bar" x="3" y="4" width="{max(0.8, at - 3):.1f}" height="10"/>'
        f'<line class="whisker" x1="{a:.1f}" x2="{b:.1f}" y1="9" y2="9"/></svg>'
    )


def ladder_table(ladder: Ladder) -> str:
    rows = [
        [
            escape(ladder.bound_text(rung)).replace(" ", "&nbsp;"), ladder.change(rung),
            f"{rung.met} of {rung.known}", *_best(rung),
        ]
        for rung in ladder.rungs
    ]  # fmt: skip
    header = ("bound", "", "meet", "best", "configuration", "its SLOs", "")
    looks = ("key", "dim", "num", "num", "dim", "", "dim")
    return table(header, rows, looks)


def _best(rung: Rung) -> list[str]:
    if rung.config is None:
        return ["none", "", "", ""]
    return [
        cell(rung.estimate), escape(config_text(rung.config)), pill(rung.state),
        escape(how_known(rung)),
    ]  # fmt: skip


def front_table(report: StudyReport) -> str:
    keys = [objective.key for objective in report.goal.objectives]
    rows = [
        [
            escape(config_text(point["config"])),
            *(cell(Estimate.from_dict(point["figures"][key])) for key in keys),
            str(point["runs"]),
        ]
        for point in front_dicts(report.goal, report.trials)
    ]
    header = ("configuration", *keys, "runs")
    return table(header, rows, ("dim", *("num" for _ in keys), "num"))


def failures(report: Recorded) -> str:
    """Every measurement without a result: when, which, why, and the end of the server's log."""
    rows = []
    start_s = min((o.started_at_s for o in report.outcomes), default=0.0)
    for number, outcome in enumerate(report.outcomes, 1):
        if outcome.ok:
            continue
        first, _, rest = (outcome.failure_reason or "no reason given").partition("\n")
        text = escape(first) + (_folded("end of the server's log", rest) if rest.strip() else "")
        whose = "configuration's fault" if outcome.failure_kind == "configuration" else "transient"
        rows.append([
            str(number), show(outcome.started_at_s - start_s, "s"), outcome.stage,
            pill(NO_RESULT.get(outcome.state, ""), outcome.state),
            whose if outcome.failure_kind else "", escape(config_text(outcome.config)), text,
        ])  # fmt: skip
    header = ("#", "at", "stage", "", "", "configuration", "reason")
    return table(header, rows, ("num", "num", "", "", "dim", "dim", "wrap"))


def measurements(report: StudyReport) -> str:
    """Every trial with its objectives, intervals and samples."""
    keys = [objective.key for objective in report.goal.objectives]
    points = report.points[:MOST_POINTS]
    rows = [
        [
            str(point.number), point.trial.stage, escape(config_text(point.trial.config)),
            *(_value(report, point, place) for place in range(len(keys))),
            pill("fail", "no result") if point.state == "none" else pill(point.state),
            escape("; ".join(filter(None, [point.why, point.early and f"early: {point.early}"]))),
        ]
        for point in points
    ]  # fmt: skip
    header = ("#", "stage", "configuration", *keys, "SLOs", "")
    looks = ("num", "", "dim", *("num" for _ in keys), "", "dim wrap")
    more = len(report.points) - len(points)
    line = f"the first {MOST_POINTS}; {more} more are in `tuner report --json`" if more else ""
    return panel(table(header, rows, looks), "", line)


def _value(report: StudyReport, point: Point, place: int) -> str:
    if point.state == "none":
        return "no traffic" if point.why.startswith("no traffic") else "no data"
    value, estimate = point.reading.values[place], point.estimates[place]
    if estimate is not None:
        return cell(estimate)
    return "no data" if value is None else escape(show(value, report.unit(place)))


def flags(report: StudyReport, decision: Decision) -> str:
    """The chosen configuration in every form that a deployment reads."""
    what = served(report).exported(decision.chosen_config)
    forms = {form: exported_text(what, form).rstrip("\n") for form in FORMS}
    lines = [
        f'<div class="dim">{escape(FORM_TITLES[form])}</div><pre>{escape(forms[form])}</pre>'
        for form in DIALECTS
    ]
    files = [
        _folded(FORM_TITLES[form], text) for form, text in forms.items() if form not in DIALECTS
    ]
    return panel("".join([*lines, *files]))


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
