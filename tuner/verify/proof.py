"""The proof: pairs of measurements, before and after in turn, until the answer is clear.

The rules are the confirmation's (tuner.search.decide and levels): the same seed on both sides of a
pair, an order that alternates, looks fixed in advance, a level that they share. Invariant: every
measurement is in the ledger before the next begins, so that Ctrl-C loses none that was finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.rows import Verified
from tuner.errors import UserError
from tuner.figures.comparison import Run, compare_runs
from tuner.search.confirm import CONFIRM_SEEDS
from tuner.search.decide import Decision, Standing, decide, standing
from tuner.search.each_load import EachLoad
from tuner.search.ledger import Ledger
from tuner.search.levels import LOOKS
from tuner.search.trial import Lab, Outcome, run_trial
from tuner.search.trials import trials_of
from tuner.slo.pooled import Pooled
from tuner.stats import Comparison
from tuner.verify.predict import Prediction, predict
from tuner.verify.proposal import Config, Proposal
from tuner.verify.watch import Seen, Watched

SIDE_FIGURES = ("output_tps", "ttft_p95", "tpot_p50", "itl_p95", "e2e_p95", "error_rate")
MOST_FAILURES = 2
_WORST_FIRST = ("critical", "warning", "cant_tell", "not_applicable", "ok")


@dataclass(frozen=True, slots=True)
class Answer:
    """outcome holds: the figure is better and no SLO is lost; refuted: no better; harmful: an SLO
    that held is missed, or the new setting fails; undecided: more pairs are needed."""

    outcome: Verified
    reason: str


@dataclass(slots=True)
class Proof:
    """Everything a verification has shown so far. seen: per measurement, in the ledger's order."""

    proposal: Proposal
    goal: EachLoad
    outcomes: list[Outcome] = field(default_factory=list)
    seen: list[Seen | None] = field(default_factory=list)
    prediction: Prediction | str = ""

    @property
    def standing(self) -> Standing | None:
        trials = trials_of(self.outcomes)
        return standing(trials, self.proposal.before, self.proposal.after, self.goal, 1)

    @property
    def decision(self) -> Decision | None:
        """As `tuner optimize` would decide between the two; None before both have a result."""
        if not _with_result(self.outcomes, self.proposal.before):
            return None
        return decide(self.outcomes, self.proposal.before, self.goal)

    @property
    def pooled(self) -> tuple[Pooled | None, Pooled | None]:
        """(before, after), each side's runs together; None of a side without a result."""
        decision, found = self.decision, self.standing
        return decision.baseline if decision else None, found.pooled if found else None

    @property
    def gain(self) -> Comparison | None:
        found = self.standing
        return found.gains[0][1] if found is not None and found.gains else None

    @property
    def pairs(self) -> int:
        found = self.standing
        return found.pairs if found is not None else 0

    def node_state(self, config: Config) -> str | None:
        """The node's worst state over one side's measurements; None where nothing tells."""
        states = [
            seen.state(self.proposal.node)
            for outcome, seen in zip(self.outcomes, self.seen, strict=True)
            if outcome.config == config and seen is not None and self.proposal.node
        ]
        known = [state for state in states if state is not None]
        return min(known, key=_WORST_FIRST.index, default=None)

    def side_effects(self) -> dict[str, Comparison]:
        """What else moved, by figure; each at the usual level, none decides."""
        sides = self._sides()
        if sides is None:
            return {}
        wanted = [*(c.key for c in self.goal.slos.clauses if c.stat), *SIDE_FIGURES]
        keys = [k for k in dict.fromkeys(wanted) if k != self.proposal.objective.key]
        keys = [k for k in keys if not k.startswith(("queue", "ttfat"))]
        return compare_runs(*sides, keys, self.goal.slos)

    def _sides(self) -> tuple[list[Run], list[Run]] | None:
        by_seed = {o.seed: o for o in _with_result(self.outcomes, self.proposal.before)}
        after = _with_result(self.outcomes, self.proposal.after)
        pairs = [(by_seed[o.seed], o) for o in after if o.seed in by_seed]
        if not pairs:
            return None
        return [_run(a) for a, _ in pairs], [_run(b) for _, b in pairs]


def prove(
    lab: Lab,
    ledger: Ledger,
    proof: Proof,
    first: Outcome,
    *,
    pairs: int,
    seed: int,
    began: Callable[[int, Config], None] = lambda pair, config: None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> Answer:
    """Pairs until the answer is clear or `pairs` are measured. first: of the present setting, under
    the first pair's seed, measured already. Raises UserError when the present setting fails."""
    watched = lab.measure
    assert isinstance(watched, Watched)
    _keep(proof, first, watched)
    if not first.ok:
        raise UserError(f"the present setting gives no result: {first.failure_reason}")
    proof.prediction = predict(proof.proposal, watched.seen.signals if watched.seen else None)
    for turn in range(pairs):
        sides = [proof.proposal.before, proof.proposal.after]
        for config in sides if turn % 2 == 0 else sides[::-1]:
            if turn == 0 and config == proof.proposal.before:
                continue
            began(turn + 1, config)
            outcome = measured(lab, config, seed + turn)
            ledger.add(outcome)
            _keep(proof, outcome, watched)
            done(outcome)
        answer = answered(proof)
        if answer.outcome != "undecided" and (turn + 1 in LOOKS or _failing(proof)):
            return answer
    return answered(proof)


def measured(lab: Lab, config: Config, seed: int) -> Outcome:
    """One side of a pair; its signals are then in the lab's Watched."""
    assert isinstance(lab.measure, Watched)
    lab.measure.config, lab.measure.seen = config, None
    return run_trial(lab, config, stage="confirm", seed=CONFIRM_SEEDS + seed)


def answered(proof: Proof) -> Answer:
    """What the measurements so far say of the advice."""
    if why := _failing(proof):
        return Answer("harmful", f"the new setting gives no result: {why}")
    decision, found, gain = proof.decision, proof.standing, proof.gain
    if decision is None or found is None or gain is None:
        return Answer("undecided", "no pair has a result on both sides")
    key = proof.proposal.objective.key
    base, missed_after = decision.baseline.verdict, found.pooled.verdict.state == "fail"
    if missed_after and base.state != "fail" and all(margin <= 0 for margin in base.margins):
        return Answer("harmful", "an SLO that was met is missed with the new setting")
    if gain.outcome == "improved":
        missed = ", though the SLOs are still missed" if missed_after else ""
        return Answer("holds", f"{key} is better{missed}")
    if decision.answer == "improved":
        return Answer("holds", decision.reason)
    if gain.outcome == "worse":
        return Answer("refuted", f"{key} is worse")
    if gain.outcome == "no_difference":
        return Answer("refuted", f"{key} is no different beyond the noise")
    more = "more --pairs or a longer --duration may tell"
    return Answer("undecided", f"whether {key} is better could not be shown: {more}")


def _keep(proof: Proof, outcome: Outcome, watched: Watched) -> None:
    proof.outcomes.append(outcome)
    proof.seen.append(watched.seen if outcome.ok else None)


def _failing(proof: Proof) -> str:
    """Why the new setting cannot be measured, after MOST_FAILURES of it in a row; "" otherwise."""
    after = [o for o in proof.outcomes if o.config == proof.proposal.after]
    last = after[-MOST_FAILURES:]
    failed = [o for o in last if o.state == "failed"]
    known = any(o.failure_kind == "configuration" for o in failed)
    if failed and (known or len(failed) == MOST_FAILURES):
        return failed[-1].failure_reason.splitlines()[0]
    return ""


def _with_result(outcomes: Sequence[Outcome], config: Config) -> list[Outcome]:
    return [o for o in outcomes if o.ok and o.config == config and o.measurement is not None]


def _run(outcome: Outcome) -> Run:
    assert outcome.measurement is not None
    return outcome.measurement.records, outcome.measurement.window_s
