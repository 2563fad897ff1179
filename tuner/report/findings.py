"""What the diagnosis of a study's baseline has found, and what became of what it proposes.

Invariant: "nothing fires" is said only of a baseline that was diagnosed; whether a lever helped is
told by the measurements and verifications that turned it, with their own verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.rows import Verification
from tuner.diagnosis.model import Lever, NodeResult, State
from tuner.report.recorded import Recorded
from tuner.report.study import StudyReport
from tuner.report.table import aligned, estimate_text
from tuner.report.verify import TITLES, realised_text
from tuner.report.words import VERDICTS
from tuner.search.trials import Config, distinct
from tuner.targets.base import config_text
from tuner.units import count_text
from tuner.verify.proposal import direction_of

HEADING = "diagnosis of the baseline, and what came of what it proposes"

Tried = Callable[[Lever], list[str]]
"""What the study itself has measured of a lever, one line each."""


def untried(_: Lever) -> list[str]:
    """Of a study that turns no knob by itself."""
    return []


@dataclass(frozen=True, slots=True)
class Advised:
    """A lever of a cause. told: what came of it, each in one line; that it was not tried where it
    was not. verifications: of this advice on this server."""

    node: NodeResult
    lever: Lever
    told: tuple[str, ...]
    verifications: tuple[Verification, ...]


def tried_in(report: StudyReport) -> Tried:
    """The configurations of a search that turned the lever's knob in its direction: all runs of
    each that turned it alone together, with their verdict; of others only that there are some."""

    def told(lever: Lever) -> list[str]:
        turned = [config for config in distinct(report.trials) if _turns(config, report, lever)]
        alone = [config for config in turned if _changed(config, report) == {lever.knob}]
        if turned and not alone:
            return [_together(report, turned)]
        return [_tried(report, config, lever.knob) for config in alone]

    return told


def _together(report: StudyReport, turned: Sequence[Config]) -> str:
    configurations = count_text(len(turned), "configuration")
    best = report.decision.best_config if report.decision is not None else None
    among = ", the best among them" if best in turned else ""
    return f"not tried alone; {configurations} turned it together with other knobs{among}"


def _tried(report: StudyReport, config: Config, knob: str) -> str:
    """`chunk_size=256: output_tps 28 tok/s [25 tok/s, 31 tok/s] n=70, 1 run, SLOs met`."""
    setting, points = config_text({knob: config[knob]}), report.points
    mine = [point for point in points if point.trial.config == config]
    known = [point.trial for point in mine if point.state != "none"]
    pooled = report.goal.pooled(known, study=report.trials) if known else None
    if pooled is None:
        return f"{setting}: {mine[-1].why or 'not every load was measured'}"
    key = report.goal.objectives[0].key
    figure = f"{key} {estimate_text(pooled.summary.get(key))}"
    slos = f", SLOs {VERDICTS[pooled.verdict.state]}" if report.slos else ""
    early = ", ended early" if all(trial.ended_early for trial in known) else ""
    return f"{setting}: {figure}, {count_text(pooled.runs, 'run')}{slos}{early}"


def advised(report: Recorded, tried: Tried = untried) -> list[Advised]:
    """Every lever of every cause, the causes in the diagnosis' own order."""
    nodes = report.diagnosis.causes if report.diagnosis is not None else ()
    return [_advised(report, node, lever, tried) for node in nodes for lever in node.levers]


def _advised(report: Recorded, node: NodeResult, lever: Lever, tried: Tried) -> Advised:
    what = (lever.knob, lever.direction)
    verified = tuple(row for row in report.verifications if (row.knob, row.direction) == what)
    told = (*tried(lever), *map(verification_text, verified))
    return Advised(node, lever, told or ("not tried",), verified)


def verification_text(row: Verification) -> str:
    """`verified (3a.seq_cap, max_num_seqs 64 → 128): The advice holds; ttft_p95 × 0.62 …`."""
    old, new = (config_text({row.knob: side[row.knob]}) for side in (row.before, row.after))
    load = str((row.workload or {}).get("text") or "")
    under = f" under {load}" if load else ""
    told = realised_text(row.figure, row.realised)
    title = TITLES.get(row.outcome, row.outcome)
    return f"verified {old} → {new.partition('=')[2]}{under}: {title}; {told}"


def unjudged(report: Recorded) -> str:
    """Which nodes could not be judged, and what is missing; "" for none."""
    nodes = report.diagnosis.nodes if report.diagnosis is not None else ()
    open_ = [node for node in nodes if node.state is State.CANT_TELL]
    missing = dict.fromkeys(name for node in open_ for name in node.missing)
    if not open_:
        return ""
    lacks = f", which lack {', '.join(missing)}" if missing else ""
    return f"cannot tell of {', '.join(node.key for node in open_)}{lacks}"


def why_nothing(report: Recorded) -> str:
    """Why no finding is shown; "" where there are some."""
    if report.lacks:
        return report.lacks
    if report.diagnosis is None:
        if not any(outcome.ok for outcome in report.outcomes):
            return "the baseline was not diagnosed: it has no result" if report.outcomes else ""
        return report.not_diagnosed
    if not report.diagnosis.causes:
        nodes = report.diagnosis.nodes
        fine = sum(node.state is State.OK for node in nodes)
        beside = sum(node.state is State.NOT_APPLICABLE for node in nodes)
        apart = f", {beside} not applicable" if beside else ""
        return f"nothing fires: {fine} of {count_text(len(nodes), 'node')} in order{apart}"
    return ""


def findings_lines(report: Recorded, tried: Tried = untried) -> list[str]:
    """A part of the terminal's report; [] where there is nothing to say."""
    why, diagnosis = why_nothing(report), report.diagnosis
    lines = [f"  {why}"] if why else []
    if diagnosis is not None:
        advice = advised(report, tried)
        for node in diagnosis.causes:
            mine = [one for one in advice if one.node is node]
            lines += [f"  {node_text(node)}: {node.summary}", *_lever_lines(mine)]
        lines += [f"  {node_text(n)}: follows from {n.symptom_of}" for n in diagnosis.symptoms]
    if told := unjudged(report):
        lines.append(f"  {told}")
    return ["", HEADING, *lines] if lines else []


def node_text(node: NodeResult) -> str:
    return f"{node.key} {node.state.value}, {node.title}"


def _lever_lines(mine: Sequence[Advised]) -> list[str]:
    rows = [
        [f"  {one.lever.title}" if place == 0 else "", text]
        for one in mine
        for place, text in enumerate(one.told)
    ]
    return aligned(rows) if rows else []


def findings_dict(report: Recorded, tried: Tried = untried) -> dict[str, Any]:
    """JSON-able. findings null: no diagnosis was made, or none is kept."""
    nodes = None
    if report.diagnosis is not None:
        nodes = [asdict(n) for n in (*report.diagnosis.causes, *report.diagnosis.symptoms)]
    return {
        "findings": nodes,
        "why_no_findings": why_nothing(report),
        "advice": [
            {
                "node": one.node.key, "knob": one.lever.knob, "direction": one.lever.direction,
                "verifications": [row.id for row in one.verifications], "told": one.told,
            }
            for one in advised(report, tried)
        ],
        "verifications": [asdict(row) for row in report.verifications],
    }  # fmt: skip


def _turns(config: Config, report: StudyReport, lever: Lever) -> bool:
    base = report.baseline
    if lever.knob not in base or lever.knob not in _changed(config, report):
        return False
    return direction_of(base[lever.knob], config[lever.knob]) == lever.direction


def _changed(config: Config, report: StudyReport) -> set[str]:
    return {name for name, value in config.items() if report.baseline.get(name) != value}
