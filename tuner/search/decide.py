"""The answer of a study: recommend, keep the baseline, or nothing meets the SLOs.

Only confirmation runs speak for a candidate (the search's own figures are biased: it was chosen for
them), and first of all for the baseline (measured in turn with it, on the machine as it was then).
A gain is claimed only where its interval excludes none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.stats import t

from tuner.search.objective import Objective
from tuner.search.pool import Pooled, pool
from tuner.search.proposals import result_value
from tuner.slo import SloSet
from tuner.stats import Comparison, compare_rates
from tuner.stats.compare import CONFIDENCE
from tuner.targets.base import Setting
from tuner.trial import Outcome
from tuner.units import count_text

Answer = Literal["improved", "keep_baseline", "undecided", "none_feasible"]
Config = dict[str, Setting]


ONLY_BASELINE = "only the baseline has a result; a larger --budget leaves time for others"


@dataclass(frozen=True, slots=True)
class Decision:
    """best None: nothing beats keeping the baseline, or nothing meets the SLOs. gain compares the
    objective of compared_config over the baseline's, in paired runs."""

    answer: Answer
    reason: str
    baseline_config: Config
    baseline: Pooled
    best_config: Config | None = None
    best: Pooled | None = None
    gain: Comparison | None = None
    compared_config: Config | None = None

    @property
    def chosen_config(self) -> Config:
        return self.best_config if self.best_config is not None else self.baseline_config

    @property
    def chosen(self) -> Pooled:
        return self.best if self.best is not None else self.baseline

    @property
    def met(self) -> bool:
        """Whether the recommended configuration is shown to meet every SLO."""
        return self.chosen.verdict.state == "pass"


def compare(
    confirmed: Sequence[Outcome], baseline: Config, candidate: Config, objective: Objective
) -> Comparison | None:
    """Candidate over baseline in the objective, paired by seed; None without a pair."""
    values: dict[int, dict[bool, float]] = {}
    for outcome in confirmed:
        value = result_value(outcome, objective)
        if value is not None and outcome.config in (baseline, candidate):
            values.setdefault(outcome.seed, {})[outcome.config == candidate] = value
    pairs = [pair for pair in values.values() if len(pair) == 2]
    if not pairs:
        return None
    return compare_rates(
        [pair[False] for pair in pairs],
        [pair[True] for pair in pairs],
        higher_is_better=objective.higher_is_better,
    )


def ends_rounds(gain: Comparison, looks: int) -> bool:
    """Whether a gain is clear enough to measure no further, when it is looked at up to `looks`
    times.

    Who stops at the first interval that excludes 1 finds gains in noise: an early "improved" must
    hold at the level divided by the looks. The other outcomes claim nothing and end at once.
    """
    if gain.outcome != "improved":
        return gain.outcome in ("no_difference", "worse")
    tail, degrees = (1 - CONFIDENCE) / 2, gain.n - 1
    half = math.log(gain.high / gain.low) / 2
    wider = half * float(t.ppf(1 - tail / looks, degrees) / t.ppf(1 - tail, degrees))
    return abs(math.log(gain.ratio)) > wider


def pooled_baseline(outcomes: Sequence[Outcome], baseline: Config, slos: SloSet) -> Pooled | None:
    """Its runs of the confirmation, where they decide; else all its runs."""
    runs = [o for o in outcomes if o.config == baseline]
    confirmed = pool([o for o in runs if o.stage == "confirm"], slos)
    if confirmed is not None and confirmed.verdict.state != "inconclusive":
        return confirmed
    return pool(runs, slos)


def decide(
    outcomes: Sequence[Outcome], baseline: Config, slos: SloSet, objective: Objective
) -> Decision:
    """From all outcomes of a study whose baseline has a result."""
    base = pooled_baseline(outcomes, baseline, slos)
    if base is None:
        raise ValueError("the baseline has no result")
    confirmed = [o for o in outcomes if o.stage == "confirm"]
    why_none = _why_none(outcomes, baseline)
    decisions = []
    for candidate in _distinct(o.config for o in confirmed if o.config != baseline):
        found = pool([o for o in confirmed if o.config == candidate], slos)
        if found is not None:
            gain = compare(confirmed, baseline, candidate, objective)
            decisions.append(_judge(base, baseline, found, candidate, gain, objective, why_none))
    order: dict[Answer, int] = {
        "improved": 0, "undecided": 1, "keep_baseline": 2, "none_feasible": 3,
    }  # fmt: skip
    if decisions:
        return min(decisions, key=lambda d: (order[d.answer], objective.rank(d.chosen.summary)))
    return _without_candidate(base, baseline, outcomes)


def _others(outcomes: Sequence[Outcome], baseline: Config) -> list[Config]:
    """Configurations with a result, other than the baseline."""
    return _distinct(o.config for o in outcomes if o.config != baseline and o.ok)


def _met_once(outcomes: Sequence[Outcome], baseline: Config) -> list[Config]:
    """Explored configurations that met every clause at the point estimate."""
    return _distinct(o.config for o in outcomes if o.config != baseline and o.meets_by_estimate)


def _why_none(outcomes: Sequence[Outcome], baseline: Config) -> str:
    """On what ground no configuration is said to meet the SLOs."""
    others = _others(outcomes, baseline)
    if not others:
        return ONLY_BASELINE
    if met := len(_met_once(outcomes, baseline)):
        return (
            f"{met} of {count_text(len(others), 'other configuration')} met them in a measurement, "
            "but the best of these missed them when measured again"
        )
    return f"measured were the baseline and {count_text(len(others), 'other configuration')}"


def _judge(
    base: Pooled,
    baseline: Config,
    found: Pooled,
    candidate: Config,
    gain: Comparison | None,
    objective: Objective,
    why_none: str,
) -> Decision:
    """One candidate against the baseline."""

    def recommend(answer: Answer, reason: str) -> Decision:
        return Decision(answer, reason, baseline, base, candidate, found, gain, candidate)

    def keep(answer: Answer, reason: str) -> Decision:
        return Decision(answer, reason, baseline, base, gain=gain, compared_config=candidate)

    name = objective.key
    state, base_state = found.verdict.state, base.verdict.state
    if state == "fail":
        if base_state == "fail":
            return keep("none_feasible", why_none)
        return keep("keep_baseline", "the best candidate missed the SLOs when confirmed")
    if base_state == "fail":
        if state == "pass":
            return recommend("improved", "meets the SLOs, which the baseline misses")
        return recommend(
            "undecided", "the baseline misses the SLOs; the best candidate is not yet decided"
        )
    outcome = gain.outcome if gain is not None else "inconclusive"
    if outcome == "improved":
        if state == "pass":
            return recommend("improved", f"{name} is better and the SLOs are met")
        return recommend("undecided", f"{name} is better, the SLOs are not yet decided")
    if state == "pass" and base_state == "inconclusive" and outcome != "worse":
        return recommend("improved", "meets the SLOs, which is not shown of the baseline")
    words = {
        "no_difference": f"no difference in {name} beyond the noise",
        "worse": f"the baseline has the better {name}",
        "inconclusive": f"no gain in {name} could be shown",
    }
    return keep("keep_baseline", words[outcome])


def _without_candidate(base: Pooled, baseline: Config, outcomes: Sequence[Outcome]) -> Decision:
    state = base.verdict.state
    if state == "fail" and (met := len(_met_once(outcomes, baseline))):
        reason = (
            f"the baseline misses the SLOs; {count_text(met, 'other configuration')} met them in a "
            "measurement that was not repeated: a larger --budget leaves time for it"
        )
        return Decision("undecided", reason, baseline, base)
    if state == "fail":
        return Decision("none_feasible", _why_none(outcomes, baseline), baseline, base)
    if state == "pass":
        reason = "no configuration promised to be better"
        return Decision(
            "keep_baseline",
            reason if _others(outcomes, baseline) else ONLY_BASELINE,
            baseline,
            base,
        )
    reason = "no candidate was confirmed and the baseline is undecided"
    return Decision(
        "undecided", reason if _others(outcomes, baseline) else ONLY_BASELINE, baseline, base
    )


def _distinct(configs: Iterable[Config]) -> list[Config]:
    found: list[Config] = []
    for config in configs:
        if config not in found:
            found.append(config)
    return found
