"""A stored study in the terminal and as JSON: the answer, importances, what SLOs cost, checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.report.findings import findings_dict, findings_lines, tried_in
from tuner.report.flags import Served
from tuner.report.optimize import report_lines, result_dict
from tuner.report.recorded import Recorded
from tuner.report.study import StudyReport
from tuner.report.study_health import check_dicts, check_lines, checks
from tuner.report.study_points import Point
from tuner.report.table import aligned, estimate_text
from tuner.report.words import ANSWERS, VERDICTS
from tuner.search.candidates import closest
from tuner.search.importance import Importances
from tuner.search.price import Ladder, Rung
from tuner.targets.base import config_text, setting_text
from tuner.units import count_text

UNCONFIRMED = "figures of search runs: the best of several measurements, so a little too good"


def study_report_lines(report: StudyReport) -> list[str]:
    lines = _answer_lines(report)
    if changed := changed_text(report):
        lines.append(f"caution: {changed}")
    lines += findings_lines(report, tried_in(report))
    lines += check_lines(checks(report))
    for figure, found in report.importances.items():
        lines += ["", f"what {figure} depends on", *(f"  {line}" for line in told(found))]
    for ladder in report.ladders:
        lines += ["", f"what {ladder.clause.text} costs", *_ladder_lines(ladder)]
    return lines


def study_report_dict(report: StudyReport) -> dict[str, Any]:
    """JSON-able."""
    answer: dict[str, Any] = {"answer": None, "reason": report.no_answer}
    if report.decision is not None:
        answer = result_dict(
            report.decision, report.goal, served=served(report), outcomes=report.outcomes,
            nearest=closest(report.outcomes), ruled_out=ruled_out(report),
        )  # fmt: skip
    return {
        "study": report.study.name,
        "state": report.study.state,
        **answer,
        "trials": [_trial_dict(point) for point in report.points],
        "importances": {key: _importances_dict(found) for key, found in report.importances.items()},
        "slo_price": [_ladder_dict(ladder) for ladder in report.ladders],
        "checks": check_dicts(checks(report)),
    } | findings_dict(report, tried_in(report))


def told(found: Importances) -> list[str]:
    """Each knob's share with its interval, and how sure their order is."""
    if found.why_not:
        return [f"cannot tell: {found.why_not} (n={found.n})"]
    lines = [
        f"{share.knob}  {share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
        for share in found.shares
    ]
    return [*lines, order_text(found)]


def order_text(found: Importances) -> str:
    first = found.shares[0].knob
    how = (
        f"n={found.n} measurements, the best {found.better} against all; 95 % intervals of the "
        "bootstrap"
    )
    if len(found.shares) == 1:
        return f"the only knob that was varied; {how}"
    if found.sure:
        return f"{first} is first in {found.first_again:.0%} of the resamples; {how}"
    return (
        f"cannot tell which knob is first: {first} is in {found.first_again:.0%} of the resamples; "
        f"{how}"
    )


def changed_text(report: StudyReport) -> str:
    """Where this version or these SLOs answer otherwise than was told when the study ended."""
    if report.decision is None or report.stored_answer in ("", report.decision.answer):
        return ""
    was = ANSWERS.get(report.stored_answer, report.stored_answer)
    return f"when the study ended its answer was {was!r}; judged again from its records it is this"


def served(report: StudyReport) -> Served:
    return Served.by(report.study.target or {})


def ruled_out(report: StudyReport) -> Mapping[str, int]:
    kept = (report.study.result or {}).get("ruled_out") or {}
    return {str(why): int(count) for why, count in kept.items()}


def _answer_lines(report: StudyReport) -> list[str]:
    study = report.study
    if report.decision is None:
        lines = [f"study {study.name}, {study.state}: no answer", f"  {report.no_answer}"]
        return [*lines, *began_as(report)]
    lines = report_lines(
        report.decision, report.goal, served=served(report), load=report.load, study=study.name,
        outcomes=report.outcomes, nearest=closest(report.outcomes), ruled_out=ruled_out(report),
    )[1:]  # fmt: skip
    return [*lines, *not_done(report), *began_as(report)]


def not_done(report: Recorded) -> list[str]:
    """What a study that has not come to its end is shown with."""
    state = report.study.state
    told = "has failed" if state == "failed" else f"is {state}"
    return [] if state == "done" else [f"the study {told}: this is what it holds so far"]


def began_as(report: Recorded) -> list[str]:
    return [f"began as: {report.study.command}"] if report.study.command else []


def _ladder_lines(ladder: Ladder) -> list[str]:
    if ladder.why_not:
        return [f"  cannot tell: {ladder.why_not}"]
    rows = [["bound", "", "meet", "best", "", "SLOs", ""]]
    rows += [
        [
            ladder.bound_text(rung), ladder.change(rung), f"{rung.met} of {rung.known}",
            *_best(rung),
        ]
        for rung in ladder.rungs
    ]  # fmt: skip
    lines = aligned(rows)
    if any(rung.config is not None and not rung.confirmed for rung in ladder.rungs):
        lines.append(f"  {UNCONFIRMED}")
    return lines


def _best(rung: Rung) -> list[str]:
    if rung.config is None:
        return ["none", "", "", ""]
    figure, config = estimate_text(rung.estimate), config_text(rung.config)
    return [figure, config, VERDICTS[rung.state], how_known(rung)]


def how_known(rung: Rung) -> str:
    """Never called confirmed: the verdict beside it may be undecided."""
    return count_text(rung.runs, "confirmation run" if rung.confirmed else "search run")


def _trial_dict(point: Point) -> dict[str, Any]:
    return {
        "number": point.number,
        "stage": point.trial.stage,
        "config": {name: setting_text(value) for name, value in point.trial.config.items()},
        "seed": point.trial.seed,
        "values": list(point.reading.values),
        "estimates": [None if e is None else e.as_dict() for e in point.estimates],
        "slos": point.state,
        "meets": point.reading.meets,
        "why": point.why,
        "ended_early": point.early,
    }


def _importances_dict(found: Importances) -> dict[str, Any]:
    return {
        "n": found.n,
        "why_not": found.why_not,
        "better": found.better,
        "first_again": None if found.why_not else found.first_again,
        "shares": [
            {"knob": s.knob, "value": s.value, "low": s.low, "high": s.high} for s in found.shares
        ],
    }


def _ladder_dict(ladder: Ladder) -> dict[str, Any]:
    return {
        "clause": ladder.clause.text,
        "why_not": ladder.why_not,
        "rungs": [
            {
                "bound": rung.bound, "factor": rung.factor, "meet": rung.met, "of": rung.known,
                "config": dict(rung.config) if rung.config is not None else None,
                "objective": rung.estimate.as_dict() if rung.estimate is not None else None,
                "runs": rung.runs, "slos": rung.state if rung.config is not None else None,
                "confirmed": rung.confirmed,
            }
            for rung in ladder.rungs
        ],
    }  # fmt: skip
