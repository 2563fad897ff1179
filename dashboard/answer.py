"""What a study answers, as the tuner stored it; while it runs, what is best so far.

The stored answer pools the runs of a configuration and rests on confirmation runs, so it always
wins over a single measurement's figures, which were chosen for being good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.history import (
    Estimate,
    Objective,
    Outcome,
    Point,
    baseline,
    best_so_far,
    config_text,
    estimate,
    outcome_of,
    same_config,
    unmet_text,
)
from storage import Study, Verification
from tuner.report.verify import TITLES
from tuner.report.words import ANSWERS, DOUBTFUL, GAINS, is_confirmed
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE
from tuner.units import digits, show

_TONES = {
    "improved": "good",
    "keep_baseline": "info",
    "undecided": "warn",
    "none_feasible": "bad",
}
VERIFIED_TONES = {"holds": "good", "refuted": "warn", "harmful": "bad", "undecided": "warn"}


@dataclass(frozen=True, slots=True)
class Side:
    """One configuration with its figures; runs is how many measurements they pool."""

    config: Mapping[str, Any]
    figures: Mapping[str, Estimate]
    outcome: Outcome
    reason: str
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """title is "" while nothing is decided. flags: engine → command line, where one is recommended.

    closest names the configuration nearest to the SLOs where none met them; model what was
    measured, doubt what speaks against using the flags.
    """

    title: str
    tone: str
    reason: str
    gain: str
    base: Side | None
    best: Side | None
    closest: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    doubt: str = ""


def answer_of(study: Study, found: Sequence[Point], objective: Objective) -> Answer:
    result = study.result or {}
    if not result:
        return _so_far(found, objective)
    answer = str(result.get("answer", ""))
    title, tone = ANSWERS.get(answer, answer), _TONES.get(answer, "info")
    reason, closest = str(result.get("reason") or ""), result.get("closest") or {}
    compared = answer != "none_feasible"
    recommends = bool((result.get("best") or {}).get("config")) or answer == "keep_baseline"
    return Answer(
        title=title,
        tone=tone,
        reason="" if reason.lower() == title.lower() else reason,
        gain=_gain_text(result.get("gain") or {}, objective) if compared else "",
        base=_side(result.get("baseline"), found) or _of_point(baseline(found)),
        best=_side(result.get("best"), found),
        closest=f"closest was {config_text(closest)}" if closest else "",
        flags=dict(result.get("flags") or {}) if recommends else {},
        model=str((study.target or {}).get("model") or ""),
        doubt="" if is_confirmed(result) else DOUBTFUL,
    )


def verified_answer(kept: Verification) -> Answer:
    """What a verification answers: whether the advice holds, not which configuration is best."""
    title, tone = TITLES[kept.outcome], VERIFIED_TONES[kept.outcome]
    return Answer(title, tone, kept.reason or "", "", None, None)


def _so_far(found: Sequence[Point], objective: Objective) -> Answer:
    base, best = baseline(found), best_so_far(found, objective)
    beaten = best is not None and (base is None or dict(best.config) != dict(base.config))
    return Answer("", "info", "", "", _of_point(base), _of_point(best) if beaten else None)


def _side(stored: Any, found: Sequence[Point]) -> Side | None:
    """A side of the result; a sweep stores only its configuration, whose measurement is found."""
    if not isinstance(stored, Mapping) or not stored.get("config"):
        return None
    config = stored["config"]
    if not stored.get("figures"):
        measured = [p for p in same_config(found, config) if p.objective.value is not None]
        return _of_point(measured[-1]) if measured else None
    verdict = stored.get("verdict") or {}
    return Side(
        config=config,
        figures={name: estimate(figure) for name, figure in stored["figures"].items()},
        outcome=outcome_of(verdict),
        reason=unmet_text(verdict),
        runs=int(stored.get("runs") or 1),
    )


def side_of_pooled(config: Mapping[str, Any], pooled: Pooled) -> Side:
    verdict = pooled.verdict.as_dict()
    figures = {key: estimate(figure.as_dict()) for key, figure in pooled.summary.items()}
    return Side(config, figures, outcome_of(verdict), unmet_text(verdict), pooled.runs)


def _of_point(point: Point | None) -> Side | None:
    if point is None:
        return None
    return Side(point.config, point.figures, point.outcome, point.reason)


def _gain_text(gain: Mapping[str, Any], objective: Objective) -> str:
    """`output_tps 1.31 × baseline (95 % interval 1.22 to 1.41, 3 pairs): confirmed`."""
    ratio, low, high = (gain.get(key) for key in ("ratio", "low", "high"))
    if ratio is None:
        return ""
    text = f"{objective.metric} {digits(ratio)} × baseline"
    pairs = int(gain.get("pairs") or 0)
    if low is None or high is None:
        return f"{text} ({pairs} pair, no interval: no gain or loss is claimed)"
    word = GAINS.get(str(gain.get("outcome")), "")
    level = show(float(gain.get("confidence") or CONFIDENCE), "share")
    ends = f"{digits(low)} to {digits(high)}"
    return f"{text} ({level} interval {ends}, {pairs} interleaved pairs): {word}"
