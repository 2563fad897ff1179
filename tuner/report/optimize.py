"""The answer of `tuner optimize` as text, and as the JSON that is stored with the study.

Every figure carries its interval and its number of samples; a gain carries its ground.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tuner.report.flags import commands, config_text
from tuner.report.words import ANSWERS, GAINS, VERDICTS
from tuner.search.decide import Decision
from tuner.search.objective import Objective
from tuner.search.pool import Pooled
from tuner.search.proposals import result_value
from tuner.slo import SloSet
from tuner.stats import Comparison, Estimate
from tuner.trial import Outcome
from tuner.units import count_text, show

SHOWN = ("output_tps", "ttft_p50", "ttft_p95", "tpot_p50", "itl_p95", "e2e_p95", "error_rate")
UNSTEADY = 1.3
"""Runs of the unchanged baseline further apart than this ratio call for a caution."""


def result_dict(
    decision: Decision,
    objective: Objective,
    *,
    model: str,
    engine: str,
    outcomes: Sequence[Outcome],
    nearest: Outcome | None,
) -> dict[str, Any]:
    """JSON-able; `best` is empty when the baseline stays."""
    best = decision.best_config
    return {
        "answer": decision.answer,
        "reason": decision.reason,
        "met": decision.met,
        "objective": str(objective),
        "baseline": _side(decision.baseline_config, decision.baseline),
        "best": _side(best, decision.best) if best is not None and decision.best else {},
        "gain": _gain_dict(decision.gain),
        "closest": dict(nearest.config) if nearest is not None and not decision.met else {},
        "flags": _commands(decision, model, engine),
        "cautions": cautions(decision, objective, outcomes),
    }


def report_lines(
    decision: Decision,
    objective: Objective,
    slos: SloSet,
    *,
    model: str,
    engine: str,
    load: str,
    study: str,
    resume: str,
    outcomes: Sequence[Outcome],
    nearest: Outcome | None,
) -> list[str]:
    """What is printed at the end. load says under what the figures were measured."""
    lines = ["", f"{ANSWERS[decision.answer]}: {decision.reason}", "", f"  {load}", ""]
    lines += _table(decision, objective, slos)
    lines += _verdict_lines("baseline", decision.baseline)
    if decision.best is not None:
        lines += _verdict_lines("best", decision.best)
    lines.append("")
    if decision.answer != "none_feasible":
        lines.append(gain_text(decision, objective))
    if not decision.met and decision.best is None:
        lines += _closest_lines(decision, nearest)
    if decision.answer != "none_feasible":
        lines.append("")
        lines += [
            f"  {name:<11} {command}"
            for name, command in _commands(decision, model, engine).items()
        ]
    lines += [f"caution: {text}" for text in cautions(decision, objective, outcomes)]
    failed = [o for o in outcomes if o.state != "ok"]
    measured = count_text(len(outcomes), "measurement")
    lines += ["", f"study {study}: {measured}, {len(failed)} without a result"]
    lines += [f"  {config_text(o.config)}: {o.failure_reason.splitlines()[0]}" for o in failed[:5]]
    return [*lines, f"go on with: {resume}"]


def cautions(decision: Decision, objective: Objective, outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader should doubt: a machine that changed while it was measured."""
    values = [
        value
        for o in outcomes
        if o.config == decision.baseline_config
        and (value := result_value(o, objective)) is not None
    ]
    if len(values) < 2 or max(values) <= UNSTEADY * min(values):
        return []
    unit = decision.baseline.summary[objective.key].unit
    return [
        f"the machine was not steady: {objective.key} of the unchanged baseline ranged from "
        f"{show(min(values), unit)} to {show(max(values), unit)}; repeat when nothing else runs"
    ]


def gain_text(decision: Decision, objective: Objective) -> str:
    """`output_tps 1.31 × baseline (95 % interval 1.22 to 1.41, 3 pairs): confirmed`."""
    gain = decision.gain
    if gain is None or math.isnan(gain.ratio):
        return f"{objective.key}: no paired comparison with the baseline"
    text = f"{objective.key} {gain.ratio:.3g} × baseline"
    if decision.best is None and decision.compared_config is not None:
        text = f"best candidate {config_text(decision.compared_config)}: {text}"
    if not math.isfinite(gain.high):
        return f"{text}, {gain.n} pair: no interval, so no gain or loss is claimed"
    return (
        f"{text} (95 % interval {gain.low:.3g} to {gain.high:.3g} from {gain.n} interleaved pairs, "
        f"same requests on both sides): {GAINS[gain.outcome]}"
    )


def estimate_text(estimate: Estimate | None) -> str:
    """`312 ms [287 ms, 344 ms] n=214`."""
    if estimate is None or not estimate.measured:
        return "–"
    ends = f"{show(estimate.low, estimate.unit)}, {show(estimate.high, estimate.unit)}"
    return f"{show(estimate.value, estimate.unit)} [{ends}] n={estimate.n}"


def _table(decision: Decision, objective: Objective, slos: SloSet) -> list[str]:
    sides = [("baseline", decision.baseline_config, decision.baseline)]
    if decision.best_config is not None and decision.best is not None:
        sides.append(("best", decision.best_config, decision.best))
    keys = list(dict.fromkeys([objective.key, *(c.key for c in slos.clauses), *SHOWN]))
    rows = [["", *(name for name, _, _ in sides)]]
    rows += [[knob, *(f"{config[knob]:g}" for _, config, _ in sides)] for knob in sides[0][1]]
    rows.append(["runs", *(str(pooled.runs) for _, _, pooled in sides)])
    rows += [[key, *(estimate_text(p.summary.get(key)) for _, _, p in sides)] for key in keys]
    return aligned(rows)


def _verdict_lines(name: str, pooled: Pooled) -> list[str]:
    lines = []
    for clause in pooled.verdict.clauses:
        reason = f" ({clause.reason})" if clause.reason else ""
        lines.append(f"  {name:<9} {clause.clause.text}: {VERDICTS[clause.state]}{reason}")
    return lines


def _closest_lines(decision: Decision, nearest: Outcome | None) -> list[str]:
    """The single measurement nearest to the SLOs, with the figures that are judged."""
    if nearest is None or nearest.verdict is None or nearest.config == decision.baseline_config:
        return []
    figures = [f"{c.clause.key} {estimate_text(c.estimate)}" for c in nearest.verdict.clauses]
    return [
        f"closest to the SLOs in one measurement: {config_text(nearest.config)}",
        *(f"  {figure}" for figure in figures),
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to their widest cell."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [f"  {line}".rstrip() for line in padded]


def _side(config: dict[str, Any], pooled: Pooled | None) -> dict[str, Any]:
    if pooled is None:
        return {"config": dict(config)}
    return {
        "config": dict(config),
        "runs": pooled.runs,
        "figures": {key: estimate.as_dict() for key, estimate in pooled.summary.items()},
        "verdict": pooled.verdict.as_dict(),
    }


def _gain_dict(gain: Comparison | None) -> dict[str, Any]:
    if gain is None:
        return {}
    values = {"ratio": gain.ratio, "low": gain.low, "high": gain.high}
    finite = {key: value if math.isfinite(value) else None for key, value in values.items()}
    return finite | {"pairs": gain.n, "outcome": gain.outcome, "method": gain.method}


def _commands(decision: Decision, model: str, engine: str) -> dict[str, str]:
    """The model named to `engine serve` is a path it can load; the other side names its own."""
    if engine == "vllm":
        return commands(decision.chosen_config, model=model, vllm_model=model or "MODEL")
    return commands(decision.chosen_config, model=model)
