"""The answer of a study: recommend, keep the baseline, or nothing meets the SLOs.

Only confirmation runs speak for a candidate (the search's own figures are biased: it was chosen for
them), and first of all for the baseline (measured in turn with it, on the machine as it was then).
A gain is claimed only where its interval excludes none, at a level that all candidates and looks
share (tuner.search.levels); "better" is never said of what is merely shown and not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tuner.search.goal import Goal
from tuner.search.levels import LOOKS, looked_at, shared_confidence
from tuner.search.objective import Objective
from tuner.search.promising import unconfirmed_text
from tuner.search.trial import Outcome
from tuner.search.trials import Config, Trial, distinct, of_config, trials_of
from tuner.slo import Verdict
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE, Comparison
from tuner.units import count_text

__all__ = ["Answer", "Config", "Decision", "Standing", "decide", "pooled_baseline", "standing"]

Answer = Literal["improved", "keep_baseline", "undecided", "none_feasible"]

ONLY_BASELINE = "only the baseline has a result; a larger --budget leaves time for others"


@dataclass(frozen=True, slots=True)
class Decision:
    """best None: nothing beats keeping the baseline, or nothing meets the SLOs. gain compares an
    objective of compared_config over the baseline's, in paired runs; gains does so for each
    objective. confidence: of every claim, shared by `candidates`."""

    answer: Answer
    reason: str
    baseline_config: Config
    baseline: Pooled
    best_config: Config | None = None
    best: Pooled | None = None
    gain: Comparison | None = None
    compared_config: Config | None = None
    gains: tuple[tuple[Objective, Comparison], ...] = ()
    candidates: int = 1
    confidence: float = CONFIDENCE

    @property
    def chosen_config(self) -> Config:
        return self.best_config if self.best_config is not None else self.baseline_config

    @property
    def chosen(self) -> Pooled:
        return self.best if self.best is not None else self.baseline

    @property
    def recommends(self) -> bool:
        """Whether a configuration is named to be used: the best, or the baseline to be kept."""
        return self.best_config is not None or self.answer == "keep_baseline"

    @property
    def met(self) -> bool:
        """Whether the recommended configuration is shown to meet every SLO."""
        return self.chosen.verdict.state == "pass"

    @property
    def doubtful(self) -> bool:
        """Whether the best configuration is a candidate that is not shown to meet the SLOs."""
        return self.best_config is not None and not self.met


@dataclass(frozen=True, slots=True)
class Standing:
    """A candidate in the confirmation, as of its last look. pairs: with the baseline, measured so
    far."""

    config: Config
    pooled: Pooled
    gains: tuple[tuple[Objective, Comparison], ...]
    pairs: int

    @property
    def outcomes(self) -> list[str]:
        """Of each objective; inconclusive where no pair was looked at."""
        return [gain.outcome for _, gain in self.gains] or ["inconclusive"]

    @property
    def improved(self) -> bool:
        """Better in one objective and not worse in any."""
        return "improved" in self.outcomes and "worse" not in self.outcomes


def standing(
    trials: Sequence[Trial], baseline: Config, candidate: Config, goal: Goal, candidates: int
) -> Standing | None:
    """None without a usable confirmation run of the candidate."""
    confirmed = [t for t in trials if t.stage == "confirm" and t.ok]
    base, mine = of_config(confirmed, baseline), of_config(confirmed, candidate)
    looked = looked_at(mine)
    pooled = goal.pooled(looked or mine, shared_confidence(candidates), trials)
    if pooled is None:
        return None
    if not looked:
        pooled = replace(pooled, verdict=_not_yet(pooled.verdict))
    seeds = {trial.seed for trial in base}
    pairs = [trial for trial in mine if trial.seed in seeds]
    level = shared_confidence(candidates, len(goal.objectives))
    gains = []
    for objective in goal.objectives:
        gain = goal.compare(base, looked_at(pairs) or pairs, objective, level, trials)
        if gain is not None and not looked_at(pairs):
            gain = replace(gain, outcome="inconclusive")
        if gain is not None:
            gains.append((objective, gain))
    return Standing(candidate, pooled, tuple(gains), len(pairs))


def pooled_baseline(
    trials: Sequence[Trial], baseline: Config, goal: Goal, candidates: int = 1
) -> Pooled | None:
    """Its runs of the confirmation, where they decide; else all its runs."""
    runs = of_config(trials, baseline)
    level = shared_confidence(candidates)
    confirmed = goal.pooled(
        looked_at([t for t in runs if t.stage == "confirm" and t.ok]), level, trials
    )
    if confirmed is not None and confirmed.verdict.state != "inconclusive":
        return confirmed
    return goal.pooled(runs, level, trials)


def candidates_of(trials: Sequence[Trial], baseline: Config) -> list[Config]:
    """Everything that ever was a candidate shares the level."""
    confirmed = [trial for trial in trials if trial.stage == "confirm"]
    return [config for config in distinct(confirmed) if config != baseline]


def crashed(trials: Sequence[Trial], config: Config) -> bool:
    """Whether it failed by its own fault when confirmed: what it did in other runs does not count
    then."""
    parts = [t.failed_part for t in trials if t.stage == "confirm" and t.config == config]
    return any(part is not None and part.failure_kind == "configuration" for part in parts)


def decide(outcomes: Sequence[Outcome], baseline: Config, goal: Goal) -> Decision:
    """From all outcomes of a study whose baseline has a result."""
    trials = trials_of(outcomes)
    candidates = candidates_of(trials, baseline)
    base = pooled_baseline(trials, baseline, goal, len(candidates))
    if base is None:
        raise ValueError("the baseline has no result")
    why_none = _why_none(trials, baseline, goal)
    decisions = []
    for candidate in candidates:
        if crashed(trials, candidate):
            continue
        found = standing(trials, baseline, candidate, goal, len(candidates))
        if found is not None:
            decisions.append(_judge(base, baseline, found, goal, why_none))
    if not decisions:
        return _without_candidate(base, baseline, trials, goal)
    order: dict[Answer, int] = {
        "improved": 0, "undecided": 1, "keep_baseline": 2, "none_feasible": 3,
    }  # fmt: skip
    first = goal.objectives[0]
    best = min(decisions, key=lambda d: (order[d.answer], not d.met, first.rank(d.chosen.summary)))
    level = shared_confidence(len(candidates), len(goal.objectives))
    return replace(best, candidates=len(candidates), confidence=level)


def _not_yet(verdict: Verdict) -> Verdict:
    """One run cannot tell how much runs differ."""
    if verdict.state == "fail":
        return verdict
    return replace(verdict, state="inconclusive", reason=f"confirmed by fewer than {LOOKS[0]} runs")


def _others(trials: Sequence[Trial], baseline: Config) -> list[Config]:
    """Configurations with a result, other than the baseline."""
    return distinct([t for t in trials if t.config != baseline and t.ok])


def _met_once(trials: Sequence[Trial], baseline: Config, goal: Goal) -> list[Config]:
    """Explored configurations that met every clause at the point estimate."""
    return distinct([t for t in trials if t.config != baseline and goal.read(t, trials).meets])


def _why_none(trials: Sequence[Trial], baseline: Config, goal: Goal) -> str:
    """On what ground no configuration is said to meet the SLOs."""
    others = _others(trials, baseline)
    if not others:
        return ONLY_BASELINE
    if met := len(_met_once(trials, baseline, goal)):
        return (
            f"{met} of {count_text(len(others), 'other configuration')} met them in a measurement, "
            "but the best of these missed them when measured again"
        )
    return f"measured were the baseline and {count_text(len(others), 'other configuration')}"


def _judge(base: Pooled, baseline: Config, found: Standing, goal: Goal, why_none: str) -> Decision:
    """One candidate against the baseline."""
    shown = _shown(found)

    def recommend(answer: Answer, reason: str) -> Decision:
        return Decision(
            answer, reason, baseline, base, found.config, found.pooled,
            shown[1] if shown else None, found.config, found.gains,
        )  # fmt: skip

    def keep(answer: Answer, reason: str) -> Decision:
        return Decision(
            answer, reason, baseline, base, gain=shown[1] if shown else None,
            compared_config=found.config, gains=found.gains,
        )  # fmt: skip

    name = shown[0].key if shown else goal.objectives[0].key
    state, base_state = found.pooled.verdict.state, base.verdict.state
    if state == "fail":
        if base_state == "fail":
            return keep("none_feasible", why_none)
        return keep("keep_baseline", "the best candidate missed the SLOs when confirmed")
    if base_state == "fail":
        if state == "pass":
            return recommend("improved", "meets the SLOs, which the baseline misses")
        return recommend(
            "undecided", "the baseline misses the SLOs; the best candidate is undecided"
        )
    if found.improved:
        if state == "pass":
            return recommend("improved", f"{name} is better and the SLOs are met")
        return recommend("undecided", f"{name} is better, the SLOs are undecided")
    if base_state == "inconclusive" and "worse" not in found.outcomes:
        if state == "pass":
            return recommend(
                "undecided", "meets the SLOs; whether the baseline meets them too is undecided"
            )
        return keep(
            "undecided", "neither the baseline nor the best candidate is shown to meet the SLOs"
        )
    return keep("keep_baseline", _why_keep(found, name))


def _shown(found: Standing) -> tuple[Objective, Comparison] | None:
    """The gain that is told: of the first objective that decides the outcome."""
    for wanted in ("improved", "worse"):
        for pair in found.gains:
            if pair[1].outcome == wanted:
                return pair
    return found.gains[0] if found.gains else None


def _why_keep(found: Standing, name: str) -> str:
    if "worse" in found.outcomes:
        return f"the baseline has the better {name}"
    if all(outcome == "no_difference" for outcome in found.outcomes):
        return f"no difference in {name} beyond the noise"
    if found.pairs < LOOKS[0]:
        return f"no gain in {name} could be shown: too few pairs of runs"
    return f"no gain in {name} could be shown"


def _without_candidate(
    base: Pooled, baseline: Config, trials: Sequence[Trial], goal: Goal
) -> Decision:
    state = base.verdict.state
    if state == "fail" and (met := len(_met_once(trials, baseline, goal))):
        reason = (
            f"the baseline misses the SLOs; {count_text(met, 'other configuration')} met them in a "
            "measurement that was not repeated: a larger --budget leaves time for it"
        )
        return Decision("undecided", reason, baseline, base)
    tried = any(trial.config != baseline for trial in trials)
    if state == "fail" and tried:
        return Decision("none_feasible", _why_none(trials, baseline, goal), baseline, base)
    if not _others(trials, baseline):
        return Decision("undecided", ONLY_BASELINE, baseline, base)
    if reason := unconfirmed_text(trials, baseline, goal):
        return Decision("undecided", reason, baseline, base)
    if state == "pass":
        reason = "no configuration promised to be better"
        return Decision("keep_baseline", reason, baseline, base)
    reason = "no candidate was confirmed and the baseline is undecided"
    return Decision("undecided", reason, baseline, base)
