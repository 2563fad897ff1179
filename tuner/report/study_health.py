"""What a reader of a study should know before trusting its answer, each with its numbers.

A check is "fine", to "look" at (more time or another range would mend it), or "unknown".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from tuner.report.optimize import UNSTEADY
from tuner.report.study import StudyReport
from tuner.report.table import aligned
from tuner.search.axis import is_number
from tuner.search.noise import Figures, figures_of, noise_of
from tuner.search.objective import CAPACITY
from tuner.search.trial import Outcome
from tuner.search.trials import distinct, explored, of_config
from tuner.search.usual import useful_limits
from tuner.targets.base import setting_text
from tuner.units import count_text, show

MANY_MISS = 0.8
"""Share of configurations that miss the SLOs above which the search had little to choose from."""

MUCH_NOISE = 0.1
"""sd of the log of the objective between runs above which gains of some percent cannot be seen."""

MOST_REASONS = 5

State = Literal["fine", "look", "unknown"]
STATES: dict[State, str] = {"fine": "ok", "look": "look", "unknown": "cannot tell"}


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: State
    text: str


def checks(report: StudyReport) -> list[Check]:
    return [
        *_edges(report), _missed(report), _noise(report), _drift(report),
        *measured_checks(report.outcomes), _early(report), *_unread(report),
    ]  # fmt: skip


def measured_checks(outcomes: Sequence[Outcome]) -> list[Check]:
    """Of the measurements of any study."""
    return [_client(outcomes), _failed(outcomes)]


def check_lines(made: Sequence[Check]) -> list[str]:
    """As a part of a report of its own."""
    return ["", "checks", *aligned([[one.name, STATES[one.state], one.text] for one in made])]


def check_dicts(made: Sequence[Check]) -> list[dict[str, str]]:
    """JSON-able."""
    return [asdict(one) for one in made]


def _edges(report: StudyReport) -> Iterator[Check]:
    name = "optimum inside the ranges"
    decision = report.decision
    if decision is None or decision.best_config is None:
        yield Check(name, "unknown", "no configuration of the search is recommended")
        return
    best = decision.best_config
    at_edge = []
    for axis in report.axes:
        settings = [value for value in axis.settings if is_number(value)]
        value = best.get(axis.name)
        if len(settings) > 1 and value in (settings[0], settings[-1]):
            if value == settings[-1] and _reaches_all(report, axis.name, float(value)):
                continue
            end = "lower" if value == settings[0] else "upper"
            at_edge.append(f"{axis.name}={setting_text(value)} is the {end} end of {axis}")
    if at_edge:
        text = "; ".join(at_edge) + ": a wider --knob range may hold a better one"
        yield Check(name, "look", text)
    else:
        told = "the best configuration is at no end of a searched range that could be wider"
        yield Check(name, "fine", told)


def _reaches_all(report: StudyReport, knob: str, most: float) -> bool:
    """Whether no value above it can matter under the study's loads."""
    goal = report.goal
    limits = [useful_limits(load).get(knob, math.inf) for load in goal.loads]
    return goal.objectives[0].key != CAPACITY and most >= max(limits)


def _missed(report: StudyReport) -> Check:
    name = "configurations that miss the SLOs"
    if not report.goal.slos:
        return Check(name, "fine", "no SLO was given")
    searched = {id(trial) for trial in explored(report.trials)}
    known = [p for p in report.points if id(p.trial) in searched and p.trial.ok]
    total = len(distinct([p.trial for p in known]))
    if not total:
        return Check(name, "unknown", "no configuration of the search has a result")
    meeting = len(distinct([p.trial for p in known if p.reading.meets]))
    missing = total - meeting
    text = f"{missing} of {total} ({missing / total:.0%}) missed them at their point estimate"
    return Check(name, "look" if missing > MANY_MISS * total else "fine", text)


def _noise(report: StudyReport) -> Check:
    noise = noise_of(report.goal, report.trials)
    key = report.goal.objectives[0].key
    state: State = "look" if noise.sd > MUCH_NOISE else "fine"
    return Check("noise between runs", state if noise.degrees else "unknown", noise.text(key))


def _drift(report: StudyReport) -> Check:
    name = "baseline steady over the study"
    mine = of_config(report.trials, report.baseline)
    each = figures_of(report.goal, mine, report.trials)
    fewest = min(len(one.values) for one in each)
    if fewest < 2:
        return Check(name, "unknown", f"{count_text(fewest, 'run')} of the baseline")
    told = "; ".join(map(_drift_text, each))
    text = f"{report.goal.objectives[0].key} of the unchanged baseline: {told}"
    unsteady = any(max(one.values) > UNSTEADY * min(one.values) for one in each)
    return Check(name, "look" if unsteady else "fine", text)


def _drift_text(one: Figures) -> str:
    first, last, low, high = (
        show(value, one.unit)
        for value in (one.values[0], one.values[-1], min(one.values), max(one.values))
    )
    under = f" under {one.load}" if one.load else ""
    runs = count_text(len(one.values), "run")
    return f"{runs}{under}: first {first}, last {last}, from {low} to {high}"


def _client(outcomes: Sequence[Outcome]) -> Check:
    reasons = [_reason(o.failure_reason) for o in outcomes if o.state == "invalid"]
    measured = count_text(len(outcomes), "measurement")
    if not reasons:
        text = f"0 of {measured} spoilt by the load generator"
        return Check("load generator", "fine" if outcomes else "unknown", text)
    text = f"{len(reasons)} of {measured} spoilt by the load generator: {_told(reasons)}"
    return Check("load generator", "look", text)


def _failed(outcomes: Sequence[Outcome]) -> Check:
    failed = [o for o in outcomes if o.state in ("failed", "aborted")]
    measured = count_text(len(outcomes), "measurement")
    if not failed:
        return Check("failures", "fine" if outcomes else "unknown", f"0 of {measured} failed")
    told = _told([_reason(o.failure_reason) for o in failed])
    return Check("failures", "look", f"{len(failed)} of {measured} failed: {told}")


def _early(report: StudyReport) -> Check:
    """Not a fault: it is how the search saves time."""
    searched = [o for o in report.outcomes if o.stage in ("sweep", "search")]
    early = sum(o.ended_early for o in searched)
    text = (
        f"{early} of {count_text(len(searched), 'measurement')} of the search: their windows are "
        "short and their intervals wide"
    )
    if not early:
        text = f"0 of {count_text(len(searched), 'measurement')} of the search"
    return Check("ended early", "fine" if searched else "unknown", text)


def _unread(report: StudyReport) -> Iterator[Check]:
    if report.unread:
        text = (
            f"this version cannot read {'; '.join(report.unread)}: no importance and no slice is "
            "shown of it"
        )
        yield Check("searched axes", "look", text)


def _reason(text: str) -> str:
    return (text or "no reason given").splitlines()[0]


def _told(reasons: Sequence[str]) -> str:
    counted = Counter(reasons).most_common()
    told = "; ".join(f"{n} × {reason}" for reason, n in counted[:MOST_REASONS])
    more = len(counted) - MOST_REASONS
    return f"{told}; and {count_text(more, 'other reason')}" if more > 0 else told
