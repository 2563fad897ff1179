"""The answer of `tuner optimize` as text, and as the JSON that is stored with the study.

Every figure carries its interval and its number of samples; a gain carries its ground.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.report.flags import Served, command_lines, commands
from tuner.report.front import front_dicts, front_lines
from tuner.report.table import aligned as aligned
from tuner.report.table import estimate_text as estimate_text
from tuner.report.words import ANSWERS, DOUBTFUL, GAINS, VERDICTS
from tuner.search.decide import Decision
from tuner.search.goal import Goal
from tuner.search.levels import LOOKS
from tuner.search.noise import figures_of, noise_of
from tuner.search.objective import Objective
from tuner.search.trial import Outcome
from tuner.search.trials import of_config, trials_of
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE, Comparison
from tuner.targets.base import config_text, setting_text
from tuner.units import count_text, digits, show

SHOWN = ("output_tps", "ttft_p50", "ttft_p95", "tpot_p50", "itl_p95", "e2e_p95", "error_rate")
UNSTEADY = 1.3
"""Runs of the unchanged baseline further apart than this ratio call for a caution."""


def result_dict(
    decision: Decision,
    goal: Goal,
    *,
    served: Served,
    outcomes: Sequence[Outcome],
    nearest: Outcome | None,
    ruled_out: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """JSON-able; `best` is empty when the baseline stays. ruled_out: how many proposals arithmetic
    ruled out, by reason."""
    best, trials = decision.best_config, trials_of(outcomes)
    noise = noise_of(goal, trials)
    return {
        "answer": decision.answer,
        "reason": decision.reason,
        "met": decision.met,
        "objective": str(goal.objectives[0]),
        "objectives": [str(objective) for objective in goal.objectives],
        "baseline": _side(decision.baseline_config, decision.baseline),
        "best": _side(best, decision.best) if best is not None and decision.best else {},
        "gain": _gain_dict(decision.gain),
        "gains": {o.key: _gain_dict(gain) for o, gain in decision.gains},
        "candidates": decision.candidates,
        "noise": {"sd_log": noise.sd, "repetitions": noise.degrees},
        "front": front_dicts(goal, trials),
        "ruled_out": dict(ruled_out or {}),
        "closest": dict(nearest.config) if nearest is not None and not decision.met else {},
        "flags": commands(decision.chosen_config, served),
        "cautions": cautions(decision, goal, outcomes),
    }


def report_lines(
    decision: Decision,
    goal: Goal,
    *,
    served: Served,
    load: str,
    study: str,
    outcomes: Sequence[Outcome],
    nearest: Outcome | None,
    ruled_out: Mapping[str, int] | None = None,
    resume: str = "",
) -> list[str]:
    """What is printed at the end. load says under what the figures were measured; resume: the
    command that goes on, where the server and the database are known."""
    trials = trials_of(outcomes)
    lines = ["", f"{ANSWERS[decision.answer]}: {decision.reason}", "", f"  {load}", ""]
    lines += _table(decision, goal)
    lines += _verdict_lines("baseline", decision.baseline)
    if decision.best is not None:
        lines += _verdict_lines("best", decision.best)
    lines.append("")
    if decision.answer != "none_feasible":
        lines += _gain_lines(decision, goal)
        lines.append(noise_of(goal, trials).text(goal.objectives[0].key))
    lines += front_lines(goal, trials)
    if not decision.met and decision.best is None:
        lines += _closest_lines(decision, nearest)
    if decision.answer != "none_feasible":
        lines += ["", *_what_is_started(decision), *_command_lines(decision, served)]
    lines += [f"caution: {text}" for text in cautions(decision, goal, outcomes)]
    lines += [
        f"not started: {count_text(n, 'proposal')}, {why}" for why, n in (ruled_out or {}).items()
    ]
    failed = [o for o in outcomes if o.state != "ok"]
    measured = count_text(len(outcomes), "measurement")
    early = sum(o.ok and o.ended_early and o.stage in ("sweep", "search") for o in outcomes)
    lines += ["", f"study {study}: {measured}, {early} ended early, {len(failed)} without a result"]
    lines += [f"  {config_text(o.config)}: {o.failure_reason.splitlines()[0]}" for o in failed[:5]]
    return [*lines, f"go on with: {resume}"] if resume else lines


def cautions(decision: Decision, goal: Goal, outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader should doubt: a machine that changed while it was measured."""
    trials = trials_of(outcomes)
    unsteady = [
        f"{show(min(one.values), one.unit)} to {show(max(one.values), one.unit)}{_under(one.load)}"
        for one in figures_of(goal, of_config(trials, decision.baseline_config), trials)
        if len(one.values) > 1 and max(one.values) > UNSTEADY * min(one.values)
    ]
    if not unsteady:
        return []
    return [
        f"the machine was not steady: {goal.objectives[0].key} of the unchanged baseline ranged "
        f"from {', and '.join(unsteady)}; repeat when nothing else runs"
    ]


def _under(load: str) -> str:
    return f" under {load}" if load else ""


def _what_is_started(decision: Decision) -> list[str]:
    """A line over the commands, where they are not those of a recommendation."""
    if not decision.recommends:
        return ["  the baseline (nothing is recommended yet):"]
    return [f"  the best candidate ({DOUBTFUL}):"] if decision.doubtful else []


def _command_lines(decision: Decision, served: Served) -> list[str]:
    return command_lines(commands(decision.chosen_config, served), served.model)


def _gain_lines(decision: Decision, goal: Goal) -> list[str]:
    if len(decision.gains) < 2:
        shown = [o for o, gain in decision.gains if gain == decision.gain]
        return [gain_text(decision, shown[0] if shown else goal.objectives[0])]
    return [gain_text(decision, objective, gain) for objective, gain in decision.gains]


def gain_text(decision: Decision, objective: Objective, gain: Comparison | None = None) -> str:
    """`output_tps 1.31 × baseline (95 % interval 1.22 to 1.41, 3 pairs): confirmed`."""
    gain = gain if gain is not None else decision.gain
    if gain is None or math.isnan(gain.ratio):
        return f"{objective.key}: no paired comparison with the baseline"
    text = f"{objective.key} {digits(gain.ratio)} × baseline"
    if decision.best is None and decision.compared_config is not None:
        text = f"best candidate {config_text(decision.compared_config)}: {text}"
    if not math.isfinite(gain.high):
        return f"{text}, {gain.n} pair: no interval, so no gain or loss is claimed"
    shared = ""
    if gain.confidence > CONFIDENCE:
        candidates = count_text(decision.candidates, "candidate")
        shared = f"; {CONFIDENCE:.0%} for {candidates} at {len(LOOKS)} looks together"
    ends = f"{digits(gain.low)} to {digits(gain.high)}"
    return (
        f"{text} ({show(gain.confidence, 'share')} interval {ends} from "
        f"{gain.n} interleaved pairs, same requests on both sides{shared}): {GAINS[gain.outcome]}"
    )


def _table(decision: Decision, goal: Goal) -> list[str]:
    """Under several loads one table for each, the worst figures first."""
    lines = _one_table(decision, goal, None)
    if decision.baseline.by_load:
        lines.insert(0, "  the worst of all loads")
        for place, (name, _) in enumerate(decision.baseline.by_load):
            lines += [f"  load {name}", *_one_table(decision, goal, place)]
    return lines


def _one_table(decision: Decision, goal: Goal, place: int | None) -> list[str]:
    sides = [("baseline", decision.baseline_config, decision.baseline)]
    if decision.best_config is not None and decision.best is not None:
        sides.append(("best", decision.best_config, decision.best))
    if place is not None:
        sides = [(name, config, pooled.by_load[place][1]) for name, config, pooled in sides]
    wanted = [o.key for o in goal.objectives] + [c.key for c in goal.slos.clauses]
    keys = list(dict.fromkeys([*wanted, *SHOWN]))
    rows = [["", *(name for name, _, _ in sides)]]
    if place is None:
        rows += [
            [knob, *(setting_text(config[knob]) for _, config, _ in sides)] for knob in sides[0][1]
        ]
    rows.append(["runs", *(str(pooled.runs) for _, _, pooled in sides)])
    rows += [
        [key, *(estimate_text(p.summary.get(key)) for _, _, p in sides)]
        for key in keys
        if any(key in p.summary for _, _, p in sides)
    ]
    return aligned(rows)


def _verdict_lines(name: str, pooled: Pooled) -> list[str]:
    """Of each load, where there are several."""
    lines = []
    for load, one in pooled.by_load or (("", pooled),):
        for clause in one.verdict.clauses:
            reason = f" ({clause.reason})" if clause.reason else ""
            told = f"{clause.clause.text}{_under(load)}: {VERDICTS[clause.state]}{reason}"
            lines.append(f"  {name:<9} {told}")
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


def _side(config: dict[str, Any], pooled: Pooled | None) -> dict[str, Any]:
    if pooled is None:
        return {"config": dict(config)}
    return {
        "config": dict(config),
        "runs": pooled.runs,
        "figures": _figures(pooled),
        "verdict": pooled.verdict.as_dict(),
        "by_load": {name: _figures(one) for name, one in pooled.by_load},
    }


def _figures(pooled: Pooled) -> dict[str, Any]:
    return {key: estimate.as_dict() for key, estimate in pooled.summary.items()}


def _gain_dict(gain: Comparison | None) -> dict[str, Any]:
    if gain is None:
        return {}
    values = {"ratio": gain.ratio, "low": gain.low, "high": gain.high}
    finite = {key: value if math.isfinite(value) else None for key, value in values.items()}
    return finite | {
        "pairs": gain.n, "outcome": gain.outcome, "method": gain.method,
        "confidence": gain.confidence,
    }  # fmt: skip
