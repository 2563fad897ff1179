"""The goal "capacity": the highest rate or concurrency at which a configuration meets every SLO.

A trial gallops from its starting level and then bisects; its measurements are levels of one load
under one seed. What is known is a bracket: the highest level that was met and the lowest above it
that was not. Invariant: a figure never says more than its bracket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t

from storage.rows import Stage
from tuner.search.each_load import paired
from tuner.search.goal import Reading, no_result
from tuner.search.objective import CAPACITY, Objective
from tuner.search.pool import pool
from tuner.search.trial import Outcome
from tuner.search.trials import Config, Trial, of_config
from tuner.slo import SloSet, Verdict, VerdictState
from tuner.slo.pooled import Pooled
from tuner.stats import CONFIDENCE, Comparison, Estimate, compare_rates
from tuner.stats.compare import judged
from tuner.workload import Workload

RESOLUTION = 1.1
"""Levels closer than this ratio are not told apart (whole numbers: neighbours)."""

MOST_PROBES = 8


@dataclass(frozen=True, slots=True)
class Bracket:
    """met: the highest level met below every missed one, 0 for none. missed: the lowest level
    missed, infinite for none. By point estimates; certain_*: the same by verdicts."""

    met: float
    missed: float
    certain_met: float
    certain_missed: float

    @property
    def closed(self) -> bool:
        return self.certain_met > 0 and math.isfinite(self.certain_missed)

    @property
    def middle(self) -> float:
        """Of what is certain; only where it is closed."""
        return math.sqrt(self.certain_met * self.certain_missed)

    @property
    def half_width(self) -> float:
        """Of the logarithm."""
        return math.log(self.certain_missed / self.certain_met) / 2


def bracket_of(parts: Sequence[Outcome]) -> Bracket:
    """Levels above the lowest missed one do not count as met: more load is no relief."""
    levels = [(_level(part), part) for part in parts]
    missed = min((at for at, part in levels if not part.meets_by_estimate), default=math.inf)
    failing = [at for at, part in levels if _state(part) in ("fail", "failed")]
    certain_missed = min(failing, default=math.inf)
    met = max((at for at, part in levels if part.meets_by_estimate and at < missed), default=0.0)
    certain_met = max(
        (at for at, part in levels if _state(part) == "pass" and at < certain_missed), default=0.0
    )
    return Bracket(met, missed, min(met, certain_met), max(missed, certain_missed))


@dataclass(frozen=True, slots=True)
class Capacity:
    """load gives all but the level."""

    slos: SloSet
    load: Workload

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return (Objective(CAPACITY),)

    @property
    def loads(self) -> tuple[Workload, ...]:
        return (self.load,)

    @property
    def until_decided(self) -> bool:
        return True

    @property
    def unit(self) -> str:
        return self.load.arrivals.unit

    def next_load(self, stage: Stage, trial: Trial | None, start: float | None) -> Workload | None:
        if trial is not None and not trial.ok:
            return None
        parts = trial.parts if trial is not None else ()
        level = self._next_level(stage, parts, start)
        return None if level is None else self.load.at(level)

    def _next_level(
        self, stage: Stage, parts: Sequence[Outcome], start: float | None
    ) -> float | None:
        if not parts:
            return self._rounded(self.load.arrivals.level if start is None else start)
        if len(parts) >= MOST_PROBES or _dominated(stage, parts):
            return None
        found = bracket_of(parts)
        if math.isinf(found.missed):
            step = RESOLUTION ** (2 ** (len(parts) - 1))
            return self._new(max(found.met * step, self._above(found.met)), parts)
        if found.met == 0:
            step = RESOLUTION ** (2 ** (len(parts) - 1))
            return self._new(min(found.missed / step, self._below(found.missed)), parts)
        middle = self._new(math.sqrt(found.met * found.missed), parts)
        if found.missed / found.met > RESOLUTION * 1.001 and middle is not None:
            return middle
        if stage in ("sweep", "search"):
            return None
        # What is claimed needs levels at which the SLOs are met, and missed, beyond doubt.
        lowest, highest = min(map(_level, parts)), max(map(_level, parts))
        if found.certain_met == 0:
            return self._new(min(lowest / RESOLUTION, self._below(lowest)), parts)
        if math.isinf(found.certain_missed):
            return self._new(max(highest * RESOLUTION, self._above(highest)), parts)
        return None

    def _new(self, level: float, parts: Sequence[Outcome]) -> float | None:
        level = self._rounded(level)
        known = [_level(part) for part in parts]
        return level if level > 0 and all(abs(level / at - 1) > 1e-6 for at in known) else None

    def _rounded(self, level: float) -> float:
        if self.load.arrivals.closed:
            return float(max(1, round(level)))
        return float(f"{level:.3g}")

    def _above(self, level: float) -> float:
        return level + 1 if self.load.arrivals.closed else level

    def _below(self, level: float) -> float:
        return max(1.0, level - 1) if self.load.arrivals.closed else level

    def start(self, trials: Sequence[Trial], config: Config, stage: Stage) -> float | None:
        """A search begins where the best known capacity is: who misses the SLOs there is beaten.
        A confirmation begins at the configuration's own."""
        own = [bracket_of(trial.parts).met for trial in of_config(trials, config) if trial.ok]
        if stage in ("baseline", "confirm"):
            known = [level for level in own if level > 0]
            return known[-1] if known else None
        others = [bracket_of(trial.parts).met for trial in trials if trial.ok]
        return max(others, default=0.0) or None

    def read(self, trial: Trial, trials: Sequence[Trial]) -> Reading:
        """A dominated configuration meets the SLOs at some load, but which one was not looked for:
        the sampler is told how far it was from the level that it was tried at."""
        if not trial.ok:
            return no_result(self.objectives, self.slos)
        found = bracket_of(trial.parts)
        if found.met > 0:
            margins = (-1.0,) * len(self.slos.clauses) + (-1.0,)
            return Reading((found.met,), margins, meets=not _dominated(trial.stage, trial.parts))
        worst = max(trial.parts[-1].margins(self.slos)[:-1])
        guess = found.missed * math.exp(-max(0.0, worst))
        if _dominated(trial.stage, trial.parts):
            return Reading((guess,), (-0.01,) * len(self.slos.clauses) + (-1.0,), meets=False)
        return Reading((None,), (*trial.parts[-1].margins(self.slos)[:-1], -1.0), meets=False)

    def told(self, trial: Trial, trials: Sequence[Trial]) -> str:
        if not trial.ok:
            return ""
        found = bracket_of(trial.parts)
        level_text = self.load.arrivals.level_text
        if found.met == 0:
            return f"capacity below {level_text(found.missed)}"
        missed = f"missed at {found.missed:g}" if math.isfinite(found.missed) else "missed nowhere"
        return f"capacity {level_text(found.met)}, {missed}"

    def pooled(
        self,
        trials: Sequence[Trial],
        confidence: float = CONFIDENCE,
        study: Sequence[Trial] = (),
    ) -> Pooled | None:
        """Figures at the highest level met in each trial; the capacity over all of them.

        The SLOs are met where every trial has a level at which they were decided to be: how high
        it is, is the capacity's interval, and near its end no verdict is ever sure.
        """
        complete = [trial for trial in trials if trial.ok]
        found = pool([_carrier(trial) for trial in complete], self.slos, confidence)
        if found is None:
            return None
        capacity = self._estimate(complete, confidence=CONFIDENCE)
        brackets = [bracket_of(trial.parts) for trial in complete]
        state: VerdictState = "inconclusive"
        if all(one.certain_met > 0 for one in brackets):
            state = "pass"
        elif all(one.met == 0 for one in brackets):
            state = "fail"
        text, where = self.loads[0].arrivals.level_text, "at no level for certain"
        if state == "pass":
            where = f"at {text(min(one.certain_met for one in brackets))} and less"
        elif state == "fail":
            where = f"down to {text(min(one.missed for one in brackets))}"
        clauses = tuple(
            replace(clause, state=state, reason=where) for clause in found.verdict.clauses
        )
        verdict = Verdict(state, clauses)
        return replace(found, summary={**found.summary, CAPACITY: capacity}, verdict=verdict)

    def _estimate(self, trials: Sequence[Trial], confidence: float) -> Estimate:
        brackets = [bracket_of(trial.parts) for trial in trials]
        probes = sum(len(trial.parts) for trial in trials)
        if any(found.met == 0 for found in brackets):
            lowest = min(found.missed for found in brackets)
            return Estimate.missing(self.unit, f"the SLOs were missed down to {lowest:g}")
        value = float(np.exp(np.mean([math.log(found.met) for found in brackets])))
        if len(brackets) == 1:
            one = brackets[0]
            return Estimate(
                value, one.certain_met, one.certain_missed, probes, self.unit,
                f"bracket of {probes} probed levels",
            )  # fmt: skip
        if not all(found.closed for found in brackets):
            low = min(found.certain_met for found in brackets)
            high = max(found.certain_missed for found in brackets)
            return Estimate(value, low, high, probes, self.unit, "widest of all brackets")
        middles = np.log([found.middle for found in brackets])
        half = float(t.isf((1 - confidence) / 2, len(brackets) - 1) * middles.std(ddof=1))
        half = half / math.sqrt(len(brackets)) + float(np.mean([b.half_width for b in brackets]))
        mean = float(middles.mean())
        return Estimate(
            value, math.exp(mean - half), math.exp(mean + half), probes, self.unit,
            f"{len(brackets)} brackets, Student, widened by half a bracket",
        )  # fmt: skip

    def compare(
        self,
        baseline: Sequence[Trial],
        candidate: Sequence[Trial],
        objective: Objective,
        confidence: float = CONFIDENCE,
        study: Sequence[Trial] = (),
    ) -> Comparison | None:
        """Middles of brackets, and the interval widened by half of both brackets: inside them
        nothing is known."""
        pairs = [
            (bracket_of(a.parts), bracket_of(b.parts))
            for a, b in paired(baseline, candidate, _bracketed)
        ]
        if not pairs:
            return None
        found = compare_rates(
            [a.middle for a, _ in pairs], [b.middle for _, b in pairs], confidence=confidence
        )
        if not math.isfinite(found.high) or found.low <= 0:
            return found
        wider = float(np.mean([a.half_width + b.half_width for a, b in pairs]))
        mean, low, high = (math.log(x) for x in (found.ratio, found.low, found.high))
        method = f"{found.method}, widened by half of both brackets"
        widened = judged(mean, low - wider, high + wider, found.n, True, method)
        return replace(widened, confidence=confidence)


def _bracketed(trial: Trial) -> bool:
    return trial.ok and bracket_of(trial.parts).closed


def _dominated(stage: Stage, parts: Sequence[Outcome]) -> bool:
    """Missed the SLOs for certain at the level that the best configuration serves."""
    return stage in ("sweep", "search") and _state(parts[0]) == "fail"


def _carrier(trial: Trial) -> Outcome:
    """The measurement at the highest level met; where none was, at the lowest."""
    met = [p for p in trial.parts if p.meets_by_estimate]
    below = bracket_of(trial.parts).missed
    met = [part for part in met if _level(part) < below]
    return max(met, key=_level) if met else min(trial.parts, key=_level)


def _level(part: Outcome) -> float:
    assert part.workload is not None
    return part.workload.arrivals.level


def _state(part: Outcome) -> str:
    """What broke down was beyond capacity; what the generator spoilt says nothing."""
    if part.ok and part.verdict is not None:
        return part.verdict.state
    return "failed" if part.state == "failed" else "unknown"
